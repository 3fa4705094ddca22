//go:build tools

// Package tools names what tests/tools/build builds: programs of other projects that judge ours, unchanged.
package tools

import (
	_ "github.com/containernetworking/cni/cnitool"
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
	_ "helm.sh/helm/v3/cmd/helm"
)
