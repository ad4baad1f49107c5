//go:build tools

// Package tools names the nats-server that Debian 12 has, for machines without apt.
package tools

import _ "github.com/nats-io/nats-server/v2"
