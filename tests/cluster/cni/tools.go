//go:build tools

// Package cni names what tests/cluster/build builds: the reference plugins that every OKE node has, unchanged.
package cni

import _ "github.com/containernetworking/plugins/plugins/meta/portmap"
