// Package interop holds what the Go programs of the interop table share.
package interop

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	v1 "example.com/interop/gen/berth/v1"
)

// Stream receives the messages of an Exec; io.EOF is not reported as an error.
type Stream interface {
	// Next returns nil at the end of the stream.
	Next() (*v1.ExecResponse, error)
}

// Client makes calls with one library.
type Client interface {
	Run(ctx context.Context, request *v1.RunCommandRequest) (*v1.RunCommandResponse, error)
	Exec(ctx context.Context, request *v1.ExecRequest) (Stream, error)
	GetSandbox(ctx context.Context, request *v1.GetSandboxRequest) error
	// Code is the gRPC code of an error, 0 for none.
	Code(err error) int
	// Detail is the typed detail of an error.
	Detail(err error) *v1.ErrorDetail
}

// Main makes one call and prints what came of it as JSON.
func Main(connect func(address string) Client) {
	if len(os.Args) != 5 {
		fail(errors.New("usage: ADDRESS SANDBOX CELL ARGUMENT"))
	}
	result, err := call(connect(os.Args[1]), os.Args[2], os.Args[3], os.Args[4])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func call(client Client, sandbox, cell, argument string) (any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	exec := &v1.ExecRequest{SandboxId: sandbox, Command: &v1.ExecRequest_Shell{Shell: argument}}
	switch cell {
	case "unary":
		answer, err := client.Run(ctx, command(sandbox, argument))
		if err != nil {
			return nil, err
		}
		return map[string]any{"stdout": string(answer.Stdout), "exitCode": answer.ExitStatus.ExitCode}, nil
	case "stream":
		stream, err := client.Exec(ctx, exec)
		if err != nil {
			return nil, err
		}
		return read(stream)
	case "reason":
		err := client.GetSandbox(ctx, &v1.GetSandboxRequest{SandboxId: argument})
		detail := client.Detail(err)
		return map[string]any{"code": client.Code(err), "reason": detail.GetReason(), "metadata": detail.GetMetadata()}, nil
	case "deadline":
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		stream, err := client.Exec(ctx, exec)
		if err == nil {
			_, err = read(stream)
		}
		return map[string]any{"code": client.Code(err)}, nil
	case "cancel":
		stream, err := client.Exec(ctx, exec)
		if err != nil {
			return nil, err
		}
		for {
			response, err := stream.Next()
			if err != nil || response == nil {
				return nil, fmt.Errorf("the stream ended early: %w", err)
			}
			if response.GetOutput() != nil {
				break
			}
		}
		cancel()
		_, err = read(stream)
		return map[string]any{"code": client.Code(err)}, nil
	case "parallel":
		return parallel(ctx, client, sandbox, argument)
	}
	return nil, fmt.Errorf("unknown cell %q", cell)
}

func command(sandbox, shell string) *v1.RunCommandRequest {
	return &v1.RunCommandRequest{SandboxId: sandbox, Command: &v1.RunCommandRequest_Shell{Shell: shell}}
}

func read(stream Stream) (any, error) {
	hash := sha256.New()
	bytes, exitCode := 0, int32(-1)
	for {
		response, err := stream.Next()
		if err != nil {
			return nil, err
		}
		if response == nil {
			return map[string]any{"bytes": bytes, "sha256": fmt.Sprintf("%x", hash.Sum(nil)), "exitCode": exitCode}, nil
		}
		bytes += len(response.GetOutput().GetData())
		hash.Write(response.GetOutput().GetData())
		if exited := response.GetExited(); exited != nil {
			exitCode = exited.ExitCode
		}
	}
}

func parallel(ctx context.Context, client Client, sandbox, shell string) (any, error) {
	outputs := make([]string, 100)
	failures := make([]error, len(outputs))
	var group sync.WaitGroup
	for index := range outputs {
		group.Add(1)
		go func() {
			defer group.Done()
			answer, err := client.Run(ctx, command(sandbox, fmt.Sprintf("%s %d", shell, index)))
			outputs[index], failures[index] = string(answer.GetStdout()), err
		}()
	}
	group.Wait()
	return map[string]any{"outputs": outputs}, errors.Join(failures...)
}
