//go:build tools

package main

// The image of test pods: tests/cluster/build builds it from these modules.
import _ "k8s.io/kubernetes/test/images/agnhost"
