//go:build tools

// Package multus names what tests/kube/multus/build builds: the meta-plugin Multus, unchanged.
package multus

import _ "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"
