package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

const (
	// How long nothing must come where nothing may come.
	silence = 100 * time.Millisecond
	many    = 200
)

func checks() map[string]func(job) error {
	return map[string]func(job) error{
		"async":                with(async),
		"sync":                 with(synchronous),
		"channel":              with(channel),
		"unsubscribe":          with(unsubscribe),
		"auto_unsubscribe":     with(autoUnsubscribe),
		"request_reply":        with(requestReply),
		"no_responders":        with(noResponders),
		"context":              with(contexts),
		"headers":              with(headers),
		"wildcards":            with(wildcards),
		"queue_group":          with(queueGroup),
		"drain_subscription":   with(drainSubscription),
		"drain_connection":     drainConnection,
		"flush":                with(flush),
		"service":              with(service),
		"closed":               closed,
		"reconnect":            reconnect,
		"retry_failed_connect": retryFailedConnect,
		"several_connections":  severalConnections,
		"discovered":           discovered,
	}
}

func expect(what string, found, wanted any) error {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		return fmt.Errorf("%s: %v, not %v", what, found, wanted)
	}
	return nil
}

// The next message's text.
func next(sub *nats.Subscription) (string, error) {
	message, err := sub.NextMsg(patience)
	if err != nil {
		return "", err
	}
	return string(message.Data), nil
}

func expectNext(sub *nats.Subscription, wanted ...string) error {
	for _, text := range wanted {
		found, err := next(sub)
		if err != nil {
			return fmt.Errorf("%s instead of %q", err, text)
		}
		if found != text {
			return fmt.Errorf("%q instead of %q", found, text)
		}
	}
	return nil
}

func expectNothing(sub *nats.Subscription) error {
	message, err := sub.NextMsg(silence)
	if errors.Is(err, nats.ErrTimeout) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%q where nothing may come", message.Data)
}

func wait(what string, signal <-chan struct{}) error {
	select {
	case <-signal:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s did not happen", what)
	}
}

func publishNumbers(nc *nats.Conn, subject string, count int) error {
	for number := range count {
		if err := nc.Publish(subject, []byte(strconv.Itoa(number))); err != nil {
			return err
		}
	}
	return nc.FlushTimeout(patience)
}

func async(j job, nc *nats.Conn) error {
	subject, got := j.subject("async"), make(chan string, many)
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) { got <- string(m.Data) }); err != nil {
		return err
	}
	if err := publishNumbers(nc, subject, many); err != nil {
		return err
	}
	for number := range many {
		select {
		case text := <-got:
			if err := expect("message", text, number); err != nil {
				return err
			}
		case <-time.After(patience):
			return fmt.Errorf("message %d did not come", number)
		}
	}
	return nil
}

func synchronous(j job, nc *nats.Conn) error {
	sub, err := nc.SubscribeSync(j.subject("sync"))
	if err != nil {
		return err
	}
	if err := nc.Publish(sub.Subject, nil); err != nil {
		return err
	}
	if err := nc.Publish(sub.Subject, []byte("one\r\nPING\r\n")); err != nil {
		return err
	}
	return errors.Join(expectNext(sub, "", "one\r\nPING\r\n"), expectNothing(sub))
}

func channel(j job, nc *nats.Conn) error {
	got := make(chan *nats.Msg, 64)
	sub, err := nc.ChanSubscribe(j.subject("channel"), got)
	if err != nil {
		return err
	}
	if err := nc.Publish(sub.Subject, []byte("through a channel")); err != nil {
		return err
	}
	select {
	case message := <-got:
		return expect("message", string(message.Data), "through a channel")
	case <-time.After(patience):
		return errors.New("nothing came through the channel")
	}
}

func unsubscribe(j job, nc *nats.Conn) error {
	var left atomic.Int32
	sub, err := nc.Subscribe(j.subject("unsubscribe"), func(*nats.Msg) { left.Add(1) })
	if err != nil {
		return err
	}
	other, err := nc.SubscribeSync(sub.Subject)
	if err != nil {
		return err
	}
	if err := errors.Join(nc.Publish(sub.Subject, []byte("1")), nc.Flush(), expectNext(other, "1"), sub.Unsubscribe()); err != nil {
		return err
	}
	if err := errors.Join(nc.Publish(sub.Subject, []byte("2")), expectNext(other, "2")); err != nil {
		return err
	}
	return expect("messages of the one that left", left.Load() <= 1, true)
}

func autoUnsubscribe(j job, nc *nats.Conn) error {
	sub, err := nc.SubscribeSync(j.subject("max"))
	if err != nil {
		return err
	}
	if err := errors.Join(sub.AutoUnsubscribe(3), publishNumbers(nc, sub.Subject, 10), expectNext(sub, "0", "1", "2")); err != nil {
		return err
	}
	if _, err := sub.NextMsg(silence); !errors.Is(err, nats.ErrMaxMessages) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("after the last one: %v", err)
	}
	return nil
}

func requestReply(j job, nc *nats.Conn) error {
	subject := j.subject("help")
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = nc.Publish(m.Reply, append([]byte("I can help "), m.Data...)) }); err != nil {
		return err
	}
	if _, err := nc.Subscribe(j.subject("respond"), func(m *nats.Msg) { _ = m.Respond([]byte("answer is 42")) }); err != nil {
		return err
	}
	for number := range many {
		answer, err := nc.Request(subject, []byte(strconv.Itoa(number)), patience)
		if err != nil {
			return fmt.Errorf("request %d: %w", number, err)
		}
		if err := expect("answer", string(answer.Data), fmt.Sprintf("I can help %d", number)); err != nil {
			return err
		}
	}
	answer, err := nc.Request(j.subject("respond"), nil, patience)
	if err != nil {
		return err
	}
	return expect("answer", string(answer.Data), "answer is 42")
}

func noResponders(j job, nc *nats.Conn) error {
	began := time.Now()
	if _, err := nc.Request(j.subject("nobody"), []byte("anyone?"), patience); !errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("nobody listens: %v", err)
	}
	if time.Since(began) > patience/2 {
		return errors.New("it was not said at once that nobody listens")
	}
	sub, err := nc.SubscribeSync(j.subject("silent"))
	if err != nil {
		return err
	}
	if _, err := nc.Request(sub.Subject, nil, silence); !errors.Is(err, nats.ErrTimeout) {
		return fmt.Errorf("somebody who says nothing: %v", err)
	}
	return nil
}

func contexts(j job, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sub, err := nc.SubscribeSync(j.subject("context"))
	if err != nil {
		return err
	}
	go func() {
		if message, err := sub.NextMsgWithContext(ctx); err == nil {
			_ = message.Respond([]byte("bar"))
		}
	}()
	answer, err := nc.RequestWithContext(ctx, sub.Subject, []byte("foo"))
	if err != nil {
		return err
	}
	return expect("answer", string(answer.Data), "bar")
}

func headers(j job, nc *nats.Conn) error {
	sub, err := nc.SubscribeSync(j.subject("headers"))
	if err != nil {
		return err
	}
	sent := nats.NewMsg(sub.Subject)
	sent.Reply = j.subject("elsewhere")
	sent.Header.Add("Key", "first")
	sent.Header.Add("Key", "second")
	sent.Header.Add("lower-case", "ä ")
	sent.Data = []byte("with headers")
	if err := nc.PublishMsg(sent); err != nil {
		return err
	}
	message, err := sub.NextMsg(patience)
	if err != nil {
		return err
	}
	return errors.Join(
		expect("values", message.Header.Values("Key"), []string{"first", "second"}),
		expect("value", message.Header.Get("lower-case"), "ä"),
		expect("keys", len(message.Header), 2),
		expect("reply", message.Reply, sent.Reply),
		expect("data", string(message.Data), "with headers"),
	)
}

func wildcards(j job, nc *nats.Conn) error {
	subject := j.subject("wild.bar.baz")
	var subs []*nats.Subscription
	for _, pattern := range []string{"wild.*.baz", "wild.bar.*", "wild.>", "wild.bar.baz"} {
		sub, err := nc.SubscribeSync(j.subject(pattern))
		if err != nil {
			return err
		}
		subs = append(subs, sub)
	}
	if err := errors.Join(nc.Publish(subject, []byte("deep")), nc.Publish(j.subject("wild.foo"), []byte("flat")), nc.Flush()); err != nil {
		return err
	}
	for _, sub := range subs {
		message, err := sub.NextMsg(patience)
		if err != nil {
			return fmt.Errorf("%s: %w", sub.Subject, err)
		}
		if err := expect(sub.Subject, message.Subject, subject); err != nil {
			return err
		}
	}
	return errors.Join(expectNothing(subs[0]), expectNothing(subs[1]), expectNext(subs[2], "flat"), expectNothing(subs[3]))
}

func queueGroup(j job, nc *nats.Conn) error {
	subject := j.subject("jobs")
	got := make(chan string, 3*many)
	var members [3]atomic.Int32
	for member := range members {
		if _, err := nc.QueueSubscribe(subject, "job_workers", func(m *nats.Msg) {
			members[member].Add(1)
			got <- string(m.Data)
		}); err != nil {
			return err
		}
	}
	everything, err := nc.SubscribeSync(subject)
	if err != nil {
		return err
	}
	if err := publishNumbers(nc, subject, many); err != nil {
		return err
	}
	seen := map[string]int{}
	for range many {
		select {
		case text := <-got:
			seen[text]++
		case <-time.After(patience):
			return fmt.Errorf("the group got %d of %d", len(seen), many)
		}
	}
	for number := range many {
		if err := errors.Join(expect("copies", seen[strconv.Itoa(number)], 1), expectNext(everything, strconv.Itoa(number))); err != nil {
			return err
		}
	}
	for member := range members {
		// A third each is 66; less than 20 of 200 does not happen by chance.
		if count := members[member].Load(); count < 20 {
			return fmt.Errorf("member %d got %d of %d", member, count, many)
		}
	}
	return expect("more than was published", len(got), 0)
}

func drainSubscription(j job, nc *nats.Conn) error {
	got, done := make(chan string, many), make(chan struct{})
	sub, err := nc.Subscribe(j.subject("drained"), func(m *nats.Msg) {
		time.Sleep(time.Millisecond)
		got <- string(m.Data)
	})
	if err != nil {
		return err
	}
	sub.SetClosedHandler(func(string) { close(done) })
	if err := errors.Join(publishNumbers(nc, sub.Subject, 50), sub.Drain(), wait("the end of the drain", done)); err != nil {
		return err
	}
	if err := publishNumbers(nc, sub.Subject, 1); err != nil {
		return err
	}
	return expect("messages that were there before the drain", len(got), 50)
}

func drainConnection(j job) error {
	done := make(chan struct{})
	nc, err := j.connect(j.Servers[0], nats.ClosedHandler(func(*nats.Conn) { close(done) }))
	if err != nil {
		return err
	}
	other, err := j.connect(j.Servers[0])
	if err != nil {
		return err
	}
	defer other.Close()
	answers, err := other.SubscribeSync(j.subject("answers"))
	if err != nil {
		return err
	}
	if _, err := nc.Subscribe(j.subject("worker"), func(m *nats.Msg) {
		time.Sleep(time.Millisecond)
		_ = m.Respond(m.Data)
	}); err != nil {
		return err
	}
	if err := errors.Join(nc.Flush(), other.Flush()); err != nil {
		return err
	}
	for number := range 50 {
		if err := other.PublishRequest(j.subject("worker"), answers.Subject, []byte(strconv.Itoa(number))); err != nil {
			return err
		}
	}
	if err := errors.Join(other.Flush(), nc.Flush(), nc.Drain(), wait("the end of the drain", done)); err != nil {
		return err
	}
	for number := range 50 {
		if err := expectNext(answers, strconv.Itoa(number)); err != nil {
			return err
		}
	}
	return nil
}

func flush(j job, nc *nats.Conn) error {
	if err := errors.Join(nc.Publish(j.subject("flush"), []byte("x")), nc.Flush(), nc.FlushTimeout(patience)); err != nil {
		return err
	}
	took, err := nc.RTT()
	if err != nil {
		return err
	}
	return expect("a round trip takes time", took > 0, true)
}

func service(j job, nc *nats.Conn) error {
	added, err := micro.AddService(nc, micro.Config{
		Name:    j.Prefix + "-echo",
		Version: "1.0.0",
		Endpoint: &micro.EndpointConfig{
			Subject: j.subject("echo"),
			Handler: micro.HandlerFunc(func(request micro.Request) { _ = request.Respond(request.Data()) }),
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = added.Stop() }()
	answer, err := nc.Request(j.subject("echo"), []byte("hello"), patience)
	if err != nil {
		return err
	}
	if _, err := nc.Request("$SRV.PING."+added.Info().Name, nil, patience); err != nil {
		return fmt.Errorf("$SRV.PING: %w", err)
	}
	return expect("answer", string(answer.Data), "hello")
}

// Every server of the list gets to see what is published at every other one.
func severalConnections(j job) error {
	var conns []*nats.Conn
	for _, server := range append(slices.Clone(j.Servers), j.Servers[0]) {
		nc, err := j.connect(server)
		if err != nil {
			return err
		}
		defer nc.Close()
		conns = append(conns, nc)
	}
	for from, publisher := range conns {
		for to, subscriber := range conns {
			sub, err := subscriber.SubscribeSync(j.subject(fmt.Sprintf("from-%d.to-%d", from, to)))
			if err != nil {
				return err
			}
			if err := subscriber.Flush(); err != nil {
				return err
			}
			if err := settled(publisher, sub); err != nil {
				return fmt.Errorf("from server %d to %d: %w", from, to, err)
			}
			if err := errors.Join(publishNumbers(publisher, sub.Subject, 3), expectNext(sub, "0", "1", "2"), expectNothing(sub)); err != nil {
				return fmt.Errorf("from server %d to %d: %w", from, to, err)
			}
		}
	}
	return nil
}

// Interest needs a moment to get from one server to another: publish until one has come, and take what comes late.
func settled(publisher *nats.Conn, sub *nats.Subscription) error {
	for began := time.Now(); time.Since(began) < patience; {
		if err := errors.Join(publisher.Publish(sub.Subject, []byte("settled?")), publisher.Flush()); err != nil {
			return err
		}
		if _, err := sub.NextMsg(10 * time.Millisecond); err == nil {
			for err == nil {
				_, err = sub.NextMsg(silence)
			}
			return nil
		}
	}
	return errors.New("nothing comes across")
}

// A client of one server of a cluster learns of the others.
func discovered(j job) error {
	nc, err := j.connect(j.Servers[0])
	if err != nil {
		return err
	}
	defer nc.Close()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		if len(nc.Servers()) >= len(j.Servers) {
			return nil
		}
	}
	return fmt.Errorf("only %v of %v", nc.Servers(), j.Servers)
}
