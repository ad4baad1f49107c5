//go:build tools

// Package tools names the `nats` command line tool, so that go.mod and go.sum fix its version and
// the versions of everything it is built from.
package tools

import _ "github.com/nats-io/natscli/nats"
