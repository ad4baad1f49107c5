// A client program over go-nsq for polymq's interoperability tests.
//
// It reads one job, a JSON object, from standard input, does it, and answers with one JSON object on standard output.
// The other clients (peers/nsqjs/client.js, tests/interop/clients/*.py) understand the same jobs; tests/interop/jobs.py
// describes them.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/nsqio/go-nsq"
)

type step struct {
	Bodies  [][]byte `json:"bodies"`
	DelayMS int64    `json:"delay_ms"`
}

type job struct {
	Action         string `json:"action"`
	Address        string `json:"address"`
	Directory      string `json:"directory"`
	Topic          string `json:"topic"`
	Steps          []step `json:"steps"`
	Channel        string `json:"channel"`
	Count          int    `json:"count"`
	MaxInFlight    int    `json:"max_in_flight"`
	MessageTimeout int64  `json:"message_timeout_ms"`
	RequeueFirst   bool   `json:"requeue_first"`
	RequeueDelayMS int64  `json:"requeue_delay_ms"`
	HoldMS         int64  `json:"hold_ms"`
	TouchEveryMS   int64  `json:"touch_every_ms"`
}

type delivery struct {
	Body      []byte `json:"body"`
	ID        string `json:"id"`
	Attempts  uint16 `json:"attempts"`
	Timestamp int64  `json:"timestamp_ns"`
	Finished  bool   `json:"finished"`
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func publish(j job) (any, error) {
	producer, err := nsq.NewProducer(j.Address, nsq.NewConfig())
	if err != nil {
		return nil, err
	}
	producer.SetLoggerLevel(nsq.LogLevelError)
	defer producer.Stop()
	published := 0
	for _, s := range j.Steps {
		switch {
		case s.DelayMS > 0:
			err = producer.DeferredPublish(j.Topic, milliseconds(s.DelayMS), s.Bodies[0])
		case len(s.Bodies) == 1:
			err = producer.Publish(j.Topic, s.Bodies[0])
		default:
			err = producer.MultiPublish(j.Topic, s.Bodies)
		}
		if err != nil {
			return nil, err
		}
		published += len(s.Bodies)
	}
	return map[string]int{"published": published}, nil
}

type handler struct {
	job        job
	lock       sync.Mutex
	deliveries []delivery
	finished   int
	enough     chan struct{}
}

func (h *handler) HandleMessage(message *nsq.Message) error {
	message.DisableAutoResponse()
	finish := !(h.job.RequeueFirst && message.Attempts == 1)
	if finish {
		h.hold(message)
		message.Finish()
	} else {
		message.RequeueWithoutBackoff(milliseconds(h.job.RequeueDelayMS))
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.deliveries = append(h.deliveries, delivery{message.Body, string(message.ID[:]), message.Attempts, message.Timestamp, finish})
	if finish {
		h.finished++
		if h.finished == h.job.Count {
			close(h.enough)
		}
	}
	return nil
}

// Keep the message for a while, telling the server now and then that it is still being worked on.
func (h *handler) hold(message *nsq.Message) {
	end := time.Now().Add(milliseconds(h.job.HoldMS))
	for time.Until(end) > 0 {
		time.Sleep(milliseconds(h.job.TouchEveryMS))
		message.Touch()
	}
}

func consume(j job) (any, error) {
	config := nsq.NewConfig()
	config.MaxInFlight = j.MaxInFlight
	if j.MessageTimeout > 0 {
		config.MsgTimeout = milliseconds(j.MessageTimeout)
	}
	consumer, err := nsq.NewConsumer(j.Topic, j.Channel, config)
	if err != nil {
		return nil, err
	}
	consumer.SetLoggerLevel(nsq.LogLevelError)
	h := &handler{job: j, enough: make(chan struct{})}
	consumer.AddHandler(h)
	connect, address := consumer.ConnectToNSQD, j.Address
	if j.Directory != "" {
		connect, address = consumer.ConnectToNSQLookupd, j.Directory
	}
	if err := connect(address); err != nil {
		return nil, err
	}
	<-h.enough
	// Says CLS, waits for CLOSE_WAIT, and lets the handler finish what has been delivered until then.
	consumer.Stop()
	<-consumer.StopChan
	h.lock.Lock()
	defer h.lock.Unlock()
	return map[string]any{"deliveries": h.deliveries}, nil
}

func run() error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(input, &j); err != nil {
		return err
	}
	actions := map[string]func(job) (any, error){"publish": publish, "consume": consume}
	action, known := actions[j.Action]
	if !known {
		return fmt.Errorf("unknown action %q", j.Action)
	}
	answer, err := action(j)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
