package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A port that leads to the server, and that can be cut and shut: what a network does to a client.
type passage struct {
	target   string
	address  string
	lock     sync.Mutex
	listener net.Listener
	open     []net.Conn
}

func newPassage(server string) (*passage, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	p := &passage{target: target.Host, address: "127.0.0.1:0"}
	return p, p.listen()
}

// The first time on any port, later on the same one.
func (p *passage) listen() error {
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	p.lock.Lock()
	p.listener, p.address = listener, listener.Addr().String()
	p.lock.Unlock()
	go func() {
		for {
			inner, err := listener.Accept()
			if err != nil {
				return
			}
			outer, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = inner.Close()
				continue
			}
			p.lock.Lock()
			p.open = append(p.open, inner, outer)
			p.lock.Unlock()
			go carry(inner, outer)
			go carry(outer, inner)
		}
	}()
	return nil
}

func carry(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = from.Close()
	_ = to.Close()
}

// Take no more connections.
func (p *passage) shut() {
	p.lock.Lock()
	defer p.lock.Unlock()
	_ = p.listener.Close()
}

// End what goes through.
func (p *passage) cut() {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, each := range p.open {
		_ = each.Close()
	}
	p.open = nil
}

type happened struct{ connected, disconnected, reconnected, closed chan struct{} }

func watched() (happened, []nats.Option) {
	h := happened{make(chan struct{}, 8), make(chan struct{}, 8), make(chan struct{}, 8), make(chan struct{}, 8)}
	return h, []nats.Option{
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectJitter(time.Millisecond, time.Millisecond),
		nats.MaxReconnects(-1),
		nats.ConnectHandler(func(*nats.Conn) { h.connected <- struct{}{} }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { h.disconnected <- struct{}{} }),
		nats.ReconnectHandler(func(*nats.Conn) { h.reconnected <- struct{}{} }),
		nats.ClosedHandler(func(*nats.Conn) { h.closed <- struct{}{} }),
	}
}

func closed(j job) error {
	h, options := watched()
	nc, err := j.connect(j.Servers[0], options...)
	if err != nil {
		return err
	}
	nc.Close()
	if err := wait("the closed handler", h.closed); err != nil {
		return err
	}
	if err := nc.Publish(j.subject("closed"), nil); !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("publish on a closed connection: %v", err)
	}
	return nil
}

// The connection breaks twice; what was subscribed is subscribed again, what was published meanwhile goes out then.
func reconnect(j job) error {
	way, err := newPassage(j.Servers[0])
	if err != nil {
		return err
	}
	defer way.shut()
	h, options := watched()
	nc, err := j.connect("nats://"+way.address, append(options, nats.IgnoreDiscoveredServers())...)
	if err != nil {
		return err
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(j.subject("reconnect"))
	if err != nil {
		return err
	}
	if err := errors.Join(publishNumbers(nc, sub.Subject, 1), expectNext(sub, "0")); err != nil {
		return err
	}
	for range 2 {
		way.shut()
		way.cut()
		if err := wait("the disconnect handler", h.disconnected); err != nil {
			return err
		}
		if err := nc.Publish(sub.Subject, []byte("meanwhile")); err != nil {
			return err
		}
		if err := errors.Join(way.listen(), wait("the reconnect handler", h.reconnected), expectNext(sub, "meanwhile")); err != nil {
			return err
		}
		if err := errors.Join(publishNumbers(nc, sub.Subject, 2), expectNext(sub, "0", "1"), expectNothing(sub)); err != nil {
			return err
		}
	}
	return expect("reconnects", nc.Stats().Reconnects, 2)
}

// Nobody is there at first. (The README names the reconnect handler here; it is the connect handler that the library calls.)
func retryFailedConnect(j job) error {
	way, err := newPassage(j.Servers[0])
	if err != nil {
		return err
	}
	way.shut()
	h, options := watched()
	nc, err := j.connect("nats://"+way.address, append(options, nats.RetryOnFailedConnect(true))...)
	if err != nil {
		return err
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(j.subject("retried"))
	if err != nil {
		return err
	}
	if err := errors.Join(nc.Publish(sub.Subject, []byte("early")), way.listen(), wait("the first connection", h.connected)); err != nil {
		return err
	}
	defer way.shut()
	return expectNext(sub, "early")
}
