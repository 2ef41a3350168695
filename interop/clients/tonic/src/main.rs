//! Makes one call of the interop table with tonic, and prints what came of it as JSON.

use std::error::Error;
use std::time::Duration;

use prost::Message;
use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

pub mod v1 {
    tonic::include_proto!("berth.v1");
}

use v1::exec_request::Command as ExecCommand;
use v1::exec_response::Event;
use v1::process_service_client::ProcessServiceClient;
use v1::run_command_request::Command as RunCommand;
use v1::sandbox_service_client::SandboxServiceClient;

async fn run(
    mut client: ProcessServiceClient<Channel>,
    sandbox: String,
    shell: String,
) -> Result<Value, Status> {
    let request = v1::RunCommandRequest {
        sandbox_id: sandbox,
        command: Some(RunCommand::Shell(shell)),
        ..Default::default()
    };
    let answer = client.run_command(request).await?.into_inner();
    let exit_code = answer.exit_status.map(|status| status.exit_code);
    Ok(json!({ "stdout": String::from_utf8_lossy(&answer.stdout), "exitCode": exit_code }))
}

async fn exec(
    client: &mut ProcessServiceClient<Channel>,
    sandbox: &str,
    shell: &str,
    deadline: Option<Duration>,
) -> Result<Streaming<v1::ExecResponse>, Status> {
    let mut request = Request::new(v1::ExecRequest {
        sandbox_id: sandbox.into(),
        command: Some(ExecCommand::Shell(shell.into())),
        ..Default::default()
    });
    if let Some(deadline) = deadline {
        request.set_timeout(deadline);
    }
    Ok(client.exec(request).await?.into_inner())
}

async fn read(mut stream: Streaming<v1::ExecResponse>) -> Result<Value, Status> {
    let (mut bytes, mut hash, mut exit_code) = (0, Sha256::new(), None);
    while let Some(response) = stream.message().await? {
        match response.event {
            Some(Event::Output(output)) => {
                bytes += output.data.len();
                hash.update(&output.data);
            }
            Some(Event::Exited(status)) => exit_code = Some(status.exit_code),
            _ => {}
        }
    }
    let sha256: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({ "bytes": bytes, "sha256": sha256, "exitCode": exit_code }))
}

/// The typed detail of an error.
fn reason_of(status: &Status) -> Result<Value, Box<dyn Error>> {
    let details = tonic_types::pb::Status::decode(status.details())?.details;
    let detail = details.first().ok_or("the error has no detail")?;
    let detail = v1::ErrorDetail::decode(detail.value.as_slice())?;
    Ok(json!({ "code": status.code() as i32, "reason": detail.reason, "metadata": detail.metadata }))
}

fn code_of<T>(result: Result<T, Status>) -> i32 {
    result.err().map_or(Code::Ok, |status| status.code()) as i32
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, sandbox, cell, argument] = arguments.as_slice() else {
        return Err("usage: berth-interop ADDRESS SANDBOX CELL ARGUMENT".into());
    };
    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = ProcessServiceClient::new(channel.clone());
    let result = match cell.as_str() {
        "unary" => run(client, sandbox.clone(), argument.clone()).await?,
        "stream" => read(exec(&mut client, sandbox, argument, None).await?).await?,
        "reason" => {
            let request = v1::GetSandboxRequest { sandbox_id: argument.clone(), ..Default::default() };
            match SandboxServiceClient::new(channel).get_sandbox(request).await {
                Ok(_) => return Err("the call did not fail".into()),
                Err(status) => reason_of(&status)?,
            }
        }
        "deadline" => {
            let ended = match exec(&mut client, sandbox, argument, Some(Duration::from_secs(2))).await {
                Ok(stream) => read(stream).await,
                Err(status) => Err(status),
            };
            json!({ "code": code_of(ended) })
        }
        "cancel" => {
            let mut stream = exec(&mut client, sandbox, argument, None).await?;
            while let Some(response) = stream.message().await? {
                if matches!(response.event, Some(Event::Output(_))) {
                    break;
                }
            }
            // tonic cancels a stream that is dropped, and reports no status for it.
            drop(stream);
            drop(client);
            drop(channel);
            tokio::time::sleep(Duration::from_millis(200)).await;
            json!({ "canceled": true })
        }
        "parallel" => {
            let tasks: Vec<_> = (0..100)
                .map(|index| tokio::spawn(run(client.clone(), sandbox.clone(), format!("{argument} {index}"))))
                .collect();
            let mut outputs = Vec::new();
            for task in tasks {
                outputs.push(task.await??["stdout"].clone());
            }
            json!({ "outputs": outputs })
        }
        other => return Err(format!("unknown cell {other}").into()),
    };
    println!("{result}");
    Ok(())
}
