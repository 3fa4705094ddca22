//go:build tools

// Package flannel names what tests/cluster/build builds: Flannel's daemon, unchanged.
package flannel

import _ "github.com/flannel-io/flannel"
