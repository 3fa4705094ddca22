//go:build tools

// Package critest pins the version of critest (tests/cluster/critest builds it).
package critest

import _ "sigs.k8s.io/cri-tools/pkg/validate"
