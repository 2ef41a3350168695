import type { Duration, Timestamp } from "./wire.ts";

export interface RunStep {
  readonly step: number;
  readonly result: string;
  readonly outcome: string;
  readonly stuck: boolean;
  readonly start_time: Timestamp;
  readonly end_time: Timestamp;
}

export interface RunMessage {
  readonly role: string;
  readonly content: string;
}

export interface Run {
  readonly run_id: string;
  readonly name: string;
  readonly state: string;
  readonly outcome: string;
  readonly message: string;
  readonly current_step: number;
  readonly max_steps: number;
  readonly duplicate_threshold: number;
  readonly step_timeout: Duration;
  readonly max_duration: Duration | null;
  readonly next_step_prompt: string;
  readonly on_end: string;
  readonly steps: readonly RunStep[];
  readonly summary: string;
  readonly sandbox_id: string;
  readonly create_time: Timestamp;
  readonly start_time: Timestamp | null;
  readonly end_time: Timestamp | null;
  readonly lease_expire_time: Timestamp | null;
  readonly owner: string;
  readonly message_count: number;
  readonly messages: readonly RunMessage[];
}

export interface NextStep {
  readonly step: number;
  readonly prompt: string;
  readonly lease_expire_time: Timestamp;
  readonly start_id: string;
}

export interface RunEnd {
  readonly state: string;
  readonly outcome: string;
  readonly message: string;
  readonly summary: string;
}

export interface ReportStepResponse {
  readonly verdict: "next_step" | "run_end";
  readonly next_step?: NextStep;
  readonly run_end?: RunEnd;
  readonly stuck: boolean;
}

export interface RunEvent {
  readonly sequence: number;
  readonly time: Timestamp;
  readonly run_id: string;
  readonly type: string;
  readonly state: string;
  readonly outcome: string;
  readonly message: string;
  readonly current_step: number;
  readonly step: RunStep | null;
  readonly sandbox_id: string;
}

export interface WatchRunResponse {
  readonly item: "event" | "trimmed" | "keepalive";
  readonly event?: RunEvent;
  readonly trimmed?: { readonly from_sequence: number; readonly to_sequence: number };
}

/** Responses of RunService's unary methods. */
export interface RunAnswers {
  "RunService/CreateRun": { readonly run: Run };
  "RunService/StartRun": { readonly run: Run; readonly next_step: NextStep };
  "RunService/ReportStep": ReportStepResponse;
  "RunService/KeepAliveRun": { readonly lease_expire_time: Timestamp };
  "RunService/CancelRun": { readonly run: Run };
  "RunService/ResetRun": { readonly run: Run };
  "RunService/GetRun": { readonly run: Run };
  "RunService/ListRuns": { readonly runs: readonly Run[]; readonly next_page_token: string };
  "RunService/DeleteRun": Record<string, never>;
}

/** Items of RunService's streaming methods. */
export interface RunStreamItems {
  "RunService/WatchRun": WatchRunResponse;
}
