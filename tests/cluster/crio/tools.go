//go:build tools

// Package crio names what tests/cluster/build builds: CRI-O, unchanged.
package crio

import _ "github.com/cri-o/cri-o/cmd/crio"
