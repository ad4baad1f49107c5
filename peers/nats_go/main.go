// A client program over nats.go for polymq's interoperability tests.
//
// It reads one job, a JSON object, from standard input, goes through the checks that the job names, each on connections of
// its own, and answers with one JSON object on standard output: {"results": {check: ""}}, a text being what went wrong.
// The checks (checks.go) are what the README of nats.go shows; tests/interop/nats_jobs.py describes the job.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// What a server gets for any answer; a check that waits in vain waits this long.
const patience = 5 * time.Second

type job struct {
	Servers     []string `json:"servers"`
	Checks      []string `json:"checks"`
	Prefix      string   `json:"prefix"`
	User        string   `json:"user"`
	Password    string   `json:"password"`
	Token       string   `json:"token"`
	NkeySeed    string   `json:"nkey_seed_file"`
	TLSRootFile string   `json:"tls_root_file"`
	TLSCertFile string   `json:"tls_cert_file"`
	TLSFirst    bool     `json:"tls_first"`
}

// What the job asks of every connection.
func (j job) options() ([]nats.Option, error) {
	options := []nats.Option{nats.Timeout(patience), nats.Name("nats-go-client")}
	if j.User != "" {
		options = append(options, nats.UserInfo(j.User, j.Password))
	}
	if j.Token != "" {
		options = append(options, nats.Token(j.Token))
	}
	if j.NkeySeed != "" {
		signed, err := nats.NkeyOptionFromSeed(j.NkeySeed)
		if err != nil {
			return nil, err
		}
		options = append(options, signed)
	}
	if j.TLSRootFile != "" {
		options = append(options, nats.RootCAs(j.TLSRootFile))
	}
	if j.TLSCertFile != "" {
		options = append(options, nats.ClientCert(j.TLSCertFile, j.TLSCertFile))
	}
	if j.TLSFirst {
		options = append(options, nats.TLSHandshakeFirst())
	}
	return options, nil
}

// A connection to one server, of which `more` is asked as well.
func (j job) connect(server string, more ...nats.Option) (*nats.Conn, error) {
	options, err := j.options()
	if err != nil {
		return nil, err
	}
	return nats.Connect(server, append(options, more...)...)
}

// A check that needs one connection, which is closed behind it.
func with(check func(j job, nc *nats.Conn) error) func(job) error {
	return func(j job) error {
		nc, err := j.connect(j.Servers[0])
		if err != nil {
			return err
		}
		defer nc.Close()
		return check(j, nc)
	}
}

// A subject that no other check uses.
func (j job) subject(name string) string { return j.Prefix + "." + name }

func run(j job) (map[string]string, error) {
	known := checks()
	results := map[string]string{}
	for _, name := range j.Checks {
		check, found := known[name]
		if !found {
			return nil, fmt.Errorf("no such check: %s", name)
		}
		results[name] = ""
		if err := check(j); err != nil {
			results[name] = err.Error()
		}
	}
	return results, nil
}

func main() {
	log.SetFlags(0)
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		log.Fatal("job: ", err)
	}
	if len(j.Servers) == 0 || strings.TrimSpace(j.Prefix) == "" {
		log.Fatal("job: servers and a prefix are needed")
	}
	results, err := run(j)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"results": results}); err != nil {
		log.Fatal(err)
	}
}
