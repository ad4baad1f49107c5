// The jobs of tests/interop/rocketmq_jobs.py, done by rocketmq-client-go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type outgoing struct {
	Body       string            `json:"body"`
	Size       int               `json:"size"`
	Tags       string            `json:"tags"`
	Keys       string            `json:"keys"`
	Flag       int32             `json:"flag"`
	Delay      int               `json:"delay"`
	Shard      string            `json:"shard"`
	Properties map[string]string `json:"properties"`
}

type job struct {
	ID           int        `json:"id"`
	Do           string     `json:"do"`
	Name         string     `json:"name"`
	Server       string     `json:"server"`
	Group        string     `json:"group"`
	Topic        string     `json:"topic"`
	Mode         string     `json:"mode"`
	Messages     []outgoing `json:"messages"`
	Expression   string     `json:"expression"`
	Model        string     `json:"model"`
	Orderly      bool       `json:"orderly"`
	From         string     `json:"from"`
	Failures     int32      `json:"failures"`
	Level        int        `json:"level"`
	ReconsumeMax int32      `json:"reconsume_max"`
	Instance     string     `json:"instance"`
}

type object = map[string]any

var (
	lock      sync.Mutex
	producers = map[string]rocketmq.Producer{}
	closers   = map[string]func() error{}
	instances int
)

func say(what object) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	lock.Lock()
	defer lock.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func instance(given job) string {
	if given.Instance != "" {
		return given.Instance
	}
	lock.Lock()
	defer lock.Unlock()
	instances++
	return fmt.Sprintf("interop%dat%d", instances, time.Now().UnixNano())
}

func remember(name string, closer func() error) {
	lock.Lock()
	defer lock.Unlock()
	closers[name] = closer
}

func startProducer(given job) (any, error) {
	started, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{given.Server}),
		producer.WithGroupName(given.Group),
		producer.WithInstanceName(instance(given)),
		producer.WithSendMsgTimeout(10*time.Second),
		// By the sharding key where there is one, any queue otherwise.
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
	)
	if err != nil {
		return nil, err
	}
	if err := started.Start(); err != nil {
		return nil, err
	}
	lock.Lock()
	producers[given.Name] = started
	lock.Unlock()
	remember(given.Name, started.Shutdown)
	return "started", nil
}

func message(topic string, given outgoing) *primitive.Message {
	body := []byte(given.Body)
	for len(body) < given.Size {
		body = append(body, '.')
	}
	made := primitive.NewMessage(topic, body)
	made.Flag = given.Flag
	if given.Tags != "" {
		made.WithTag(given.Tags)
	}
	if given.Keys != "" {
		made.WithKeys(strings.Fields(given.Keys))
	}
	if given.Delay > 0 {
		made.WithDelayTimeLevel(given.Delay)
	}
	if given.Shard != "" {
		made.WithShardingKey(given.Shard)
	}
	for name, value := range given.Properties {
		made.WithProperty(name, value)
	}
	return made
}

func sent(result *primitive.SendResult) object {
	status := map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK"}[result.Status]
	if status == "" {
		status = "SEND_" + strconv.Itoa(int(result.Status))
	}
	return object{"status": status, "id": result.MsgID, "offset_id": result.OffsetMsgID, "queue": result.MessageQueue.QueueId, "offset": result.QueueOffset}
}

func send(given job) (any, error) {
	lock.Lock()
	from := producers[given.Name]
	lock.Unlock()
	messages := []*primitive.Message{}
	for _, each := range given.Messages {
		messages = append(messages, message(given.Topic, each))
	}
	results := make([]any, 0, len(messages))
	background := context.Background()
	switch given.Mode {
	case "sync", "ordered":
		for _, each := range messages {
			result, err := from.SendSync(background, each)
			if err != nil {
				return nil, err
			}
			results = append(results, sent(result))
		}
	case "oneway":
		for _, each := range messages {
			if err := from.SendOneWay(background, each); err != nil {
				return nil, err
			}
		}
	case "batch":
		result, err := from.SendSync(background, messages...)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result))
	case "async":
		results = make([]any, len(messages))
		var left sync.WaitGroup
		for index, each := range messages {
			left.Add(1)
			err := from.SendAsync(background, func(_ context.Context, result *primitive.SendResult, err error) {
				if err != nil {
					results[index] = err.Error()
				} else {
					results[index] = sent(result)
				}
				left.Done()
			}, each)
			if err != nil {
				return nil, err
			}
		}
		left.Wait()
	default:
		return nil, errors.New("no such mode")
	}
	return results, nil
}

func tell(name string, messages []*primitive.MessageExt) {
	for _, each := range messages {
		size := len(each.Body)
		say(object{
			"event": "message", "name": name, "size": size, "body": string(each.Body[:min(size, 200)]), "topic": each.Topic,
			"tags": each.GetTags(), "keys": each.GetKeys(), "flag": each.Flag, "message_id": each.MsgId, "queue": each.Queue.QueueId,
			"offset": each.QueueOffset, "reconsumed": each.ReconsumeTimes, "born": each.BornTimestamp, "stored": each.StoreTimestamp,
			"properties": each.GetProperties(), "at": time.Now().UnixMilli(),
		})
	}
}

func options(given job) []consumer.Option {
	from := consumer.ConsumeFromFirstOffset
	if given.From == "last" {
		from = consumer.ConsumeFromLastOffset
	}
	model := consumer.Clustering
	if given.Model == "broadcasting" {
		model = consumer.BroadCasting
	}
	return []consumer.Option{
		consumer.WithNameServer([]string{given.Server}),
		consumer.WithGroupName(given.Group),
		consumer.WithInstance(instance(given)),
		consumer.WithConsumeFromWhere(from),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(given.Orderly),
		consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond),
	}
}

func startPush(given job) (any, error) {
	started, err := rocketmq.NewPushConsumer(append(options(given), consumer.WithMaxReconsumeTimes(given.ReconsumeMax))...)
	if err != nil {
		return nil, err
	}
	var guard sync.Mutex
	failed := map[string]int32{}
	fails := func(each *primitive.MessageExt) bool {
		if !given.Orderly {
			return each.ReconsumeTimes < given.Failures
		}
		guard.Lock()
		defer guard.Unlock()
		failed[each.MsgId]++
		return failed[each.MsgId] <= given.Failures
	}
	handle := func(context context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		tell(given.Name, messages)
		if concurrently, found := primitive.GetConcurrentlyCtx(context); found {
			concurrently.DelayLevelWhenNextConsume = given.Level
		}
		if !fails(messages[0]) {
			return consumer.ConsumeSuccess, nil
		}
		if given.Orderly {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeRetryLater, nil
	}
	if err := started.Subscribe(given.Topic, consumer.MessageSelector{Type: consumer.TAG, Expression: given.Expression}, handle); err != nil {
		return nil, err
	}
	if err := started.Start(); err != nil {
		return nil, err
	}
	remember(given.Name, started.Shutdown)
	return "started", nil
}

func startLite(given job) (any, error) {
	started, err := rocketmq.NewPullConsumer(options(given)...)
	if err != nil {
		return nil, err
	}
	if err := started.Subscribe(given.Topic, consumer.MessageSelector{Type: consumer.TAG, Expression: given.Expression}); err != nil {
		return nil, err
	}
	if err := started.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-ended:
				return
			default:
			}
			request, err := started.Poll(context.Background(), 200*time.Millisecond)
			if err == nil {
				tell(given.Name, request.GetMsgList())
				started.ACK(context.Background(), request, consumer.ConsumeSuccess)
			}
		}
	}()
	remember(given.Name, func() error {
		close(ended)
		<-gone
		return started.Shutdown()
	})
	return "started", nil
}

func closeOne(given job) (any, error) {
	lock.Lock()
	closer := closers[given.Name]
	delete(closers, given.Name)
	lock.Unlock()
	if closer == nil {
		return "nobody", nil
	}
	return "closed", closer()
}

func do(given job) {
	jobs := map[string]func(job) (any, error){"producer": startProducer, "send": send, "push": startPush, "lite": startLite, "close": closeOne}
	what, found := jobs[given.Do]
	if !found {
		what = func(job) (any, error) { return nil, errors.New("no such job") }
	}
	result, err := what(given)
	if err != nil {
		say(object{"id": given.ID, "error": err.Error()})
	} else {
		say(object{"id": given.ID, "result": result})
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	input := bufio.NewReader(os.Stdin)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var given job
		if err != nil || json.Unmarshal(line, &given) != nil {
			panic("what?")
		}
		go do(given)
	}
}
