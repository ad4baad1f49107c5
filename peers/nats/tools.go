//go:build tools

// Package tools names the newest nats-server, and the example programs of nats.go, so that go.mod
// and go.sum fix their versions and the versions of everything they are built from.
package tools

import (
	_ "github.com/nats-io/nats-server/v2"
	_ "github.com/nats-io/nats.go/examples/nats-bench"
	_ "github.com/nats-io/nats.go/examples/nats-echo"
	_ "github.com/nats-io/nats.go/examples/nats-pub"
	_ "github.com/nats-io/nats.go/examples/nats-qsub"
	_ "github.com/nats-io/nats.go/examples/nats-req"
	_ "github.com/nats-io/nats.go/examples/nats-rply"
	_ "github.com/nats-io/nats.go/examples/nats-sub"
)
