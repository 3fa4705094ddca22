// CoreDNS with the plugins that a cluster's configuration names, unchanged.
package main

import (
	_ "github.com/coredns/caddy/onevent"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

// The order in which a query passes them, as CoreDNS's own plugin.cfg has it.
func init() {
	dnsserver.Directives = []string{"reload", "errors", "health", "ready", "cache", "kubernetes", "forward"}
}

func main() {
	coremain.Run()
}
