// Command libcni judges CNI configurations as containerd and CRI-O do, which load them by libcni: for each file it prints the types
// of the plugins that a runtime runs, or that libcni refuses the file.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

func load(file string) (*libcni.NetworkConfigList, error) {
	if strings.HasSuffix(file, ".conflist") {
		return libcni.ConfListFromFile(file)
	}
	conf, err := libcni.ConfFromFile(file)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf)
}

func main() {
	for _, file := range os.Args[1:] {
		list, err := load(file)
		if err != nil {
			fmt.Println("refused")
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			continue
		}
		var types []string
		for _, plugin := range list.Plugins {
			types = append(types, plugin.Network.Type)
		}
		fmt.Println(strings.Join(types, ","))
	}
}
