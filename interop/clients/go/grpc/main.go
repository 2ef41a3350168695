// Makes one call of the interop table with grpc-go.
package main

import (
	"context"
	"errors"
	"io"

	v1 "example.com/interop/gen/berth/v1"
	"example.com/interop/interop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

type client struct {
	processes v1.ProcessServiceClient
	sandboxes v1.SandboxServiceClient
}

type stream struct {
	grpc.ServerStreamingClient[v1.ExecResponse]
}

func (s stream) Next() (*v1.ExecResponse, error) {
	response, err := s.Recv()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return response, err
}

func (c client) Run(ctx context.Context, request *v1.RunCommandRequest) (*v1.RunCommandResponse, error) {
	return c.processes.RunCommand(ctx, request)
}

func (c client) Exec(ctx context.Context, request *v1.ExecRequest) (interop.Stream, error) {
	responses, err := c.processes.Exec(ctx, request)
	return stream{responses}, err
}

func (c client) GetSandbox(ctx context.Context, request *v1.GetSandboxRequest) error {
	_, err := c.sandboxes.GetSandbox(ctx, request)
	return err
}

func (client) Code(err error) int {
	return int(status.Code(err))
}

func (client) Detail(err error) *v1.ErrorDetail {
	for _, detail := range status.Convert(err).Details() {
		if found, ok := detail.(*v1.ErrorDetail); ok {
			return found
		}
	}
	return nil
}

func main() {
	interop.Main(func(address string) interop.Client {
		connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			panic(err)
		}
		return client{v1.NewProcessServiceClient(connection), v1.NewSandboxServiceClient(connection)}
	})
}
