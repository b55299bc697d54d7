// The counters and gauges of the agent's parts: one row for each. The status (status.cc), the metrics (metrics.cc,
// sampled_metrics.cc) and their help texts are generated from them.
#pragma once

#include "agent/status/figure.h"
#include "agent/status/status.h"

namespace offpath::agent {

inline constexpr Figure<ProcessUsage> process_figures[] = {
    {"cpu_s", [](const ProcessUsage& usage) -> FigureValue { return usage.cpu_s; }, "cpu_seconds_total",
     "Processor time of the agent's process."},
    {"resident_bytes", value<&ProcessUsage::resident_bytes>, "resident_bytes",
     "Memory of the process, including frames."},
    {"own_resident_bytes", value<&ProcessUsage::own_resident_bytes>, "own_resident_bytes",
     "Memory of the process without frames, shared segments and mapped files."},
    {"threads", value<&ProcessUsage::threads>},
    {"descriptors_max", value<&ProcessUsage::descriptors_max>},
};

inline constexpr Figure<AgentStatus> limit_figures[] = {
    {"channels_max", value<&AgentStatus::channels_max>, "channels_max", "How many programs may be connected."},
    {"handshakes_max", value<&AgentStatus::handshakes_max>},
    {"streams_max", value<&AgentStatus::streams_max>},
};

inline constexpr Figure<AcceptorCounters> acceptor_figures[] = {
    {"connections", value<&AcceptorCounters::connections>, "connections_total", "Connections accepted."},
    {"welcomed", value<&AcceptorCounters::welcomed>},
    {"welcomed_by_old_key", value<&AcceptorCounters::welcomed_by_old_key>, "welcomed_by_old_key_total",
     "Programs that connected with an old key (security.old_key_files)."},
    {"refused", value<&AcceptorCounters::refused>, "refusals_total",
     "Connections that were refused, or whose handshake failed."},
    {"handshakes", value<&AcceptorCounters::handshakes>, "handshakes", "Connections whose handshake is not complete."},
};

inline constexpr std::string_view loop_help = "Time of the loop by activity; overhead is part of busy and spinning.";
inline constexpr Figure<loop::LoopCounters> loop_figures[] = {
    {"rounds", value<&loop::LoopCounters::rounds>, "loop_rounds_total", "Rounds of the loop."},
    {"busy_rounds", value<&loop::LoopCounters::busy_rounds>, "loop_busy_rounds_total", "Rounds that did something."},
    {"sleeps", value<&loop::LoopCounters::sleeps>, "loop_sleeps_total", "Times the loop went to sleep."},
    {"naps", value<&loop::LoopCounters::naps>, "loop_naps_total",
     "Short sleeps of a loop with work under way, to share its core with another thread or process."},
    {"looks", value<&loop::LoopCounters::looks>},
    {"descriptors_ready", value<&loop::LoopCounters::descriptors_ready>},
    {"timers_fired", value<&loop::LoopCounters::timers_fired>},
    {"busy_s", seconds<&loop::LoopCounters::busy_ns>, "loop_seconds_total", loop_help, "in", "busy"},
    {"spinning_s", seconds<&loop::LoopCounters::spinning_ns>, "loop_seconds_total", loop_help, "in", "spinning"},
    {"asleep_s", seconds<&loop::LoopCounters::asleep_ns>, "loop_seconds_total", loop_help, "in", "asleep"},
    {"overhead_s", seconds<&loop::LoopCounters::overhead_ns>, "loop_seconds_total", loop_help, "in", "overhead"},
    {"longest_round_s", seconds<&loop::LoopCounters::longest_round_ns>, "loop_longest_round_seconds",
     "The longest round so far."},
};

inline constexpr Figure<channel::LookCounters> look_out_figures[] = {
    {"look_outs", value<&channel::LookCounters::look_outs>, "look_outs_total",
     "Times the loop was awake because a program's next post was expected."},
    {"wakes_spared", value<&channel::LookCounters::wakes_spared>, "wakes_spared_total",
     "Posts that came while the loop was awake for them, and so did not have to wake it."},
    {"looking_s", seconds<&channel::LookCounters::looking_ns>, "look_out_seconds_total",
     "Time the loop was awake for posts that were expected."},
};

inline constexpr std::string_view jobs_help = "Jobs that ran on threads beside the loop, by result.";
inline constexpr Figure<loop::JobPoolCounters> job_figures[] = {
    {"started", value<&loop::JobPoolCounters::started>},
    {"finished", value<&loop::JobPoolCounters::finished>},
    {"", [](const loop::JobPoolCounters& jobs) -> FigureValue { return jobs.finished - jobs.failed; }, "jobs_total",
     jobs_help, "result", "done"},
    {"failed", value<&loop::JobPoolCounters::failed>, "jobs_total", jobs_help, "result", "failed"},
    {"waiting", value<&loop::JobPoolCounters::waiting>, "jobs_waiting", "Jobs waiting for a thread's queue."},
    {"waiting_most", value<&loop::JobPoolCounters::waiting_most>},
};

inline constexpr Figure<AgentStatus> memory_figures[] = {
    {"bytes_max", value<&AgentStatus::memory_bytes_max>, "memory_max_bytes", "Memory for frames."},
    {"used_bytes", value<&AgentStatus::used_bytes>, "memory_used_bytes",
     "Memory of frames that are held or being filled."},
    {"promised_bytes", [](const AgentStatus& status) -> FigureValue { return status.mover.promised_bytes; },
     "memory_promised_bytes", "Memory promised to programs as credit."},
    {"free_bytes", value<&AgentStatus::free_bytes>, "memory_free_bytes", "Memory that can still be promised."},
    {"reserved_bytes", value<&AgentStatus::reserved_bytes>, "memory_reserved_bytes",
     "Memory reserved for copies of other members' sift pools."},
};

inline constexpr std::string_view buffers_help = "Buffers taken, from the cache or newly made.";
inline constexpr Figure<AgentStatus> cache_figures[] = {
    {"cached_bytes_max", value<&AgentStatus::cached_bytes_max>, "buffers_cached_max_bytes",
     "The most bytes of unused buffers that the cache keeps."},
};
inline constexpr Figure<service::BufferCacheCounters> buffer_figures[] = {
    {"hits", value<&service::BufferCacheCounters::hits>, "buffers_total", buffers_help, "cache", "hit"},
    {"misses", value<&service::BufferCacheCounters::misses>, "buffers_total", buffers_help, "cache", "miss"},
    {"hit_rate",
     [](const service::BufferCacheCounters& buffers) -> FigureValue {
       const std::uint64_t taken = buffers.hits + buffers.misses;
       return taken == 0 ? 0.0 : static_cast<double>(buffers.hits) / static_cast<double>(taken);
     }},
    {"dropped", value<&service::BufferCacheCounters::dropped>, "buffers_dropped_total",
     "Buffers that found no room in the cache."},
    {"cached_bytes", value<&service::BufferCacheCounters::cached_bytes>, "buffers_cached_bytes",
     "Memory of unused buffers."},
    {"leaving_bytes", value<&service::BufferCacheCounters::leaving_bytes>, "buffers_leaving_bytes",
     "Memory of dropped buffers that is still being returned to the kernel."},
    {"cached_buffers", value<&service::BufferCacheCounters::cached_buffers>},
    {"used_buffers", value<&service::BufferCacheCounters::used_buffers>},
    {"huge_bytes", value<&service::BufferCacheCounters::huge_bytes>, "buffers_huge_bytes_total",
     "Memory of new buffers that the kernel made of huge pages on request."},
    {"huge_refusals", value<&service::BufferCacheCounters::huge_refusals>, "buffers_huge_refusals_total",
     "Requests for huge pages that the kernel refused."},
};

inline constexpr std::string_view requests_help = "Send and move requests of programs.";
inline constexpr std::string_view compression_help =
    "Bytes of frames of streams with compression, before and after it.";
inline constexpr Figure<mover::MoverCounters> mover_figures[] = {
    {"sends", value<&mover::MoverCounters::sends>, "requests_total", requests_help, "kind", "send"},
    {"moves", value<&mover::MoverCounters::moves>, "requests_total", requests_help, "kind", "move"},
    {"failures", value<&mover::MoverCounters::failures>, "request_failures_total",
     "Send and move requests that failed."},
    {"frames", value<&mover::MoverCounters::frames>, "frames_total", "Frames finished."},
    {"bytes", value<&mover::MoverCounters::bytes>, "moved_bytes_total", "Bytes read from programs."},
    {"rows", value<&mover::MoverCounters::rows>, "rows_total", "Rows in frames finished."},
    {"streams_open", value<&mover::MoverCounters::streams_open>, "streams_open", "Streams that are open."},
    {"operations", value<&mover::MoverCounters::operations>, "operations", "Requests under way."},
    {"pull_s", seconds<&mover::MoverCounters::pull_ns>, "pull_seconds_total",
     "Time from when the agent first sees a request until its bytes are read, summed over requests."},
    {"finish_s", seconds<&mover::MoverCounters::finish_ns>, "finish_seconds_total",
     "Time from when a request's bytes are read until its frame is finished, summed over requests."},
    {"packed_frames", value<&mover::MoverCounters::packed_frames>, "compressed_frames_total",
     "Frames of streams with compression."},
    {"plain_bytes", value<&mover::MoverCounters::plain_bytes>, "compression_bytes_total", compression_help, "of",
     "plain"},
    {"packed_bytes", value<&mover::MoverCounters::packed_bytes>, "compression_bytes_total", compression_help, "of",
     "kept"},
    {"pack_s", seconds<&mover::MoverCounters::pack_ns>, "compression_seconds_total",
     "Time to finish frames of streams with compression, including the wait for a thread."},
};

inline constexpr Figure<pool::FrameTableCounters> table_figures[] = {
    {"pools", value<&pool::FrameTableCounters::pools>},
    {"frames", value<&pool::FrameTableCounters::frames>, "pool_frames", "Frames held."},
    {"bytes", value<&pool::FrameTableCounters::bytes>, "pool_bytes", "Bytes of frames held."},
    {"puts", value<&pool::FrameTableCounters::puts>},
    {"gets", value<&pool::FrameTableCounters::gets>, "pool_gets_total", "Objects asked for."},
    {"drops", value<&pool::FrameTableCounters::drops>},
    {"expired", value<&pool::FrameTableCounters::expired>, "pool_expired_total",
     "Objects removed because their time to live had expired."},
    {"waiting", value<&pool::FrameTableCounters::waiting>, "pool_waiting", "Requests that wait for objects."},
    {"leases", value<&pool::FrameTableCounters::leases>, "pool_leases", "Frames that programs hold mapped."},
    {"written_bytes", value<&pool::FrameTableCounters::written_bytes>, "pool_written_bytes_total",
     "Bytes written to files."},
};

inline constexpr Figure<AgentStatus::DiskStatus> disk_status_figures[] = {
    {"spilled_bytes", value<&AgentStatus::DiskStatus::spilled_bytes>, "pool_spilled_bytes",
     "Bytes of objects that are only on disk."},
    {"", [](const AgentStatus::DiskStatus& disk) -> FigureValue { return !disk.failure.empty(); }, "pool_disk_failing",
     "1: the last object could not be written."},
};
inline constexpr Figure<pool::DiskCounters> disk_figures[] = {
    {"objects", value<&pool::DiskCounters::objects>, "pool_disk_objects",
     "Objects on disk, whether in memory too or not."},
    {"bytes", value<&pool::DiskCounters::bytes>, "pool_disk_bytes", "Bytes of objects on disk."},
    {"written", value<&pool::DiskCounters::written>},
    {"written_bytes", value<&pool::DiskCounters::written_bytes>, "pool_disk_written_bytes_total",
     "Bytes of objects written to disk."},
    {"read", value<&pool::DiskCounters::read>},
    {"read_bytes", value<&pool::DiskCounters::read_bytes>, "pool_disk_read_bytes_total", "Bytes of objects read back."},
    {"writing", value<&pool::DiskCounters::writing>, "pool_disk_writing", "Objects being written."},
    {"reading", value<&pool::DiskCounters::reading>, "pool_disk_reading", "Objects being read back."},
    {"failures", value<&pool::DiskCounters::failures>, "pool_disk_failures_total",
     "Objects that could not be written: the disk was full, or failed."},
    {"corrupt", value<&pool::DiskCounters::corrupt>, "pool_disk_corrupt_total", "Objects that could not be read back."},
    {"recovered", value<&pool::DiskCounters::recovered>},
};

inline constexpr Figure<pool::PoolsCounters> remote_figures[] = {
    {"puts", value<&pool::PoolsCounters::remote_puts>, "pool_remote_puts_total",
     "Objects put to other members, one for each copy."},
    {"gets", value<&pool::PoolsCounters::remote_gets>, "pool_remote_gets_total",
     "Objects requested from other members."},
    {"bytes", value<&pool::PoolsCounters::remote_bytes>, "pool_remote_bytes_total",
     "Bytes of objects put to other members or requested from them."},
    {"served_puts", value<&pool::PoolsCounters::served_puts>, "pool_served_puts_total",
     "Objects that other members put here."},
    {"served_gets", value<&pool::PoolsCounters::served_gets>, "pool_served_gets_total",
     "Objects that other members requested."},
    {"served_bytes", value<&pool::PoolsCounters::served_bytes>, "pool_served_bytes_total",
     "Bytes of objects that other members put here or requested."},
    {"retries", value<&pool::PoolsCounters::retries>, "pool_retries_total",
     "Puts that were retried because a member did not answer or had no room."},
    {"moved_rows", value<&pool::PoolsCounters::moved_rows>, "pool_moved_rows_total",
     "Rows moved to other owners because members joined or left."},
    {"puts_under_way", value<&pool::PoolsCounters::puts_under_way>, "pool_puts_under_way",
     "Puts that some owners still lack."},
    {"pulls_waiting", value<&pool::PoolsCounters::pulls_waiting>, "pool_pulls_waiting",
     "Objects of other members that wait for room."},
    {"moves_waiting", value<&pool::PoolsCounters::moves_waiting>},
    {"failed_moves", value<&pool::PoolsCounters::failed_moves>, "pool_moves_failed_total",
     "Failed attempts to move rows to other owners; they are retried."},
    {"conflicts", value<&pool::PoolsCounters::conflicts>, "pool_conflicts_total",
     "Objects replaced by others of the same key that were put on the other side of a network partition."},
    {"comparisons_waiting", value<&pool::PoolsCounters::comparisons_waiting>, "pool_comparisons_waiting",
     "Comparisons with other owners that are pending since members changed."},
};

inline constexpr Figure<channel::AgentEndCounters> channel_figures[] = {
    {"requests", value<&channel::AgentEndCounters::requests>},
    {"replies", value<&channel::AgentEndCounters::replies>},
    {"failures", value<&channel::AgentEndCounters::failures>},
    {"misses", value<&channel::AgentEndCounters::misses>},
    {"pulls", value<&channel::AgentEndCounters::pulls>},
    {"bytes_pulled", value<&channel::AgentEndCounters::bytes_pulled>},
    {"pushes", value<&channel::AgentEndCounters::pushes>},
    {"bytes_pushed", value<&channel::AgentEndCounters::bytes_pushed>},
    {"looks", value<&channel::AgentEndCounters::looks>},
    {"wakes_sent", value<&channel::AgentEndCounters::wakes_sent>},
    {"sleeps", value<&channel::AgentEndCounters::sleeps>},
};

inline constexpr std::string_view tables_help = "Tables of members, by outcome.";
inline constexpr Figure<group::GroupCounters> group_figures[] = {
    {"tables_posted", value<&group::GroupCounters::tables_posted>, "member_tables_total", tables_help, "what",
     "posted"},
    {"tables_failed", value<&group::GroupCounters::tables_failed>, "member_tables_total", tables_help, "what",
     "failed"},
    {"tables_taken", value<&group::GroupCounters::tables_taken>, "member_tables_total", tables_help, "what", "taken"},
    {"tables_refused", value<&group::GroupCounters::tables_refused>, "member_tables_total", tables_help, "what",
     "refused"},
    {"table_bytes_posted", value<&group::GroupCounters::table_bytes_posted>, "member_table_bytes_total",
     "Bytes of the tables of members that were posted."},
    {"suspicions", value<&group::GroupCounters::suspicions>, "member_suspicions_total",
     "Times that this agent learnt that another member is suspected."},
    {"deaths", value<&group::GroupCounters::deaths>, "member_deaths_total",
     "Times that this agent learnt that another member is dead."},
};

inline constexpr Figure<link::CardFigures> card_figures[] = {
    {"devices", value<&link::CardFigures::devices>, "card_devices", "Devices of cards that links have open."},
    {"regions", value<&link::CardFigures::regions>, "card_regions", "Pieces of memory registered with cards."},
    {"pinned_bytes", value<&link::CardFigures::pinned_bytes>, "card_pinned_bytes",
     "Memory that is pinned because it is registered with cards: rings, bounce buffers, frames."},
    {"frame_bytes", value<&link::CardFigures::frame_bytes>, "card_frame_bytes",
     "The part of card_pinned_bytes in frames that are pulled and pushed."},
};

inline constexpr std::string_view asked_help = "Requests to other members, by outcome.";
inline constexpr Figure<group::ReachCounters> reach_figures[] = {
    {"channels", value<&group::ReachCounters::channels>, "member_channels", "Channels to other members."},
    {"outboxes", value<&group::ReachCounters::outboxes>},
    {"connects", value<&group::ReachCounters::connects>},
    {"connect_failures", value<&group::ReachCounters::connect_failures>, "member_connect_failures_total",
     "Attempts to connect to other members that failed."},
    {"channels_lost", value<&group::ReachCounters::lost>, "member_channels_lost_total",
     "Channels to other members that were lost."},
    {"asked", value<&group::ReachCounters::asked>},
    {"answered", value<&group::ReachCounters::answered>, "member_requests_total", asked_help, "result", "answered"},
    {"failed", value<&group::ReachCounters::failed>, "member_requests_total", asked_help, "result", "failed"},
};

inline constexpr Figure<pool::QueryServiceCounters> query_figures[] = {
    {"queries", value<&pool::QueryServiceCounters::queries>, "pool_queries_total", "Queries received."},
    {"failed", value<&pool::QueryServiceCounters::failed>, "pool_query_failures_total", "Queries that failed."},
    {"steps", value<&pool::QueryServiceCounters::steps>},
    {"open", value<&pool::QueryServiceCounters::open>, "pool_queries_open",
     "Queries whose answer has not been read to its end."},
    {"running", value<&pool::QueryServiceCounters::running>},
    {"rows_read", value<&pool::QueryServiceCounters::rows_read>, "pool_query_rows_total", "Rows that queries read."},
    {"read_bytes", value<&pool::QueryServiceCounters::bytes_read>, "pool_query_read_bytes_total",
     "Bytes that queries read."},
    {"answered_bytes", value<&pool::QueryServiceCounters::bytes_answered>, "pool_query_answered_bytes_total",
     "Bytes of the answers to queries."},
};

// Figures of one stage; the metrics are sums over pools.
inline constexpr Figure<sift::StageCounters> stage_figures[] = {
    {"budget_bytes", value<&sift::StageCounters::budget_bytes>, "sift_budget_bytes",
     "Bytes of pieces a stage may hold."},
    {"used_bytes", value<&sift::StageCounters::used_bytes>, "sift_held_bytes", "Bytes of pieces that a stage holds."},
    {"used_bytes_peak", value<&sift::StageCounters::used_bytes_peak>},
    {"offers_waiting", value<&sift::StageCounters::offers_waiting>, "sift_offers_waiting",
     "Pieces that wait at their sender for room here."},
    {"outgoing", value<&sift::StageCounters::outgoing>},
    {"outgoing_bytes", value<&sift::StageCounters::outgoing_bytes>, "sift_outgoing_bytes",
     "Bytes of split pieces that are kept until the next stage has them."},
    {"pieces", value<&sift::StageCounters::pieces_taken>, "sift_pieces_total", "Pieces taken."},
    {"rows", value<&sift::StageCounters::rows_taken>, "sift_rows_total", "Rows taken."},
    {"repeated", value<&sift::StageCounters::repeated>},
    {"refused", value<&sift::StageCounters::refused>, "sift_refused_total", "Pieces that were refused."},
    {"splits", value<&sift::StageCounters::splits>, "sift_splits_total",
     "Elements split; in the last stage, elements sorted."},
    {"splits_under_pressure", value<&sift::StageCounters::split_under_pressure>},
    {"published", value<&sift::StageCounters::published>},
    {"published_again", value<&sift::StageCounters::published_again>, "sift_published_again_total",
     "Pieces sent again because their answer was lost."},
    {"pieces_restored", value<&sift::StageCounters::restored>, "sift_restored_pieces_total",
     "Kept pieces restored after a restart."},
    {"pieces_lost", value<&sift::StageCounters::lost>, "sift_lost_pieces_total",
     "Kept pieces that could not be read back."},
    {"merges", value<&sift::StageCounters::merges>, "sift_merges_total", "Merges of runs of tracks."},
    {"merge_failures", value<&sift::StageCounters::merge_failures>, "sift_merge_failures_total",
     "Merges that failed; they are tried again, without a run that is damaged."},
    {"track_runs", value<&sift::StageCounters::track_runs>, "sift_track_runs", "Runs of tracks."},
    {"damaged_runs", value<&sift::StageCounters::damaged_runs>, "sift_damaged_runs",
     "Runs of tracks on disk with a block that is lost."},
};

// Of files that members wrote (Tracks.write).
inline constexpr Figure<sift::TrackParts::Counters> track_file_figures[] = {
    {"files", value<&sift::TrackParts::Counters::files>, "sift_written_files_total",
     "Files of tracks that this agent wrote."},
    {"rows", value<&sift::TrackParts::Counters::rows>, "sift_written_rows_total",
     "Rows in files of tracks that this agent wrote."},
    {"bytes", value<&sift::TrackParts::Counters::bytes>, "sift_written_bytes_total",
     "Bytes of files of tracks that this agent wrote."},
};

inline constexpr Figure<pool::ComputeCounters> compute_figures[] = {
    {"asked", value<&pool::ComputeCounters::asked>, "pool_computes_total",
     "Computations that programs and members asked for."},
    {"failed", value<&pool::ComputeCounters::failed>, "pool_compute_failures_total", "Computations that failed."},
    {"calls", value<&pool::ComputeCounters::calls>, "pool_compute_calls_total",
     "Functions called on objects, by triggers too."},
    {"waiting", value<&pool::ComputeCounters::waiting>, "pool_computes_waiting", "Computations that wait for objects."},
    {"calling", value<&pool::ComputeCounters::calling>, "pool_computes_calling", "Calls that are under way."},
    {"input_bytes", value<&pool::ComputeCounters::input_bytes>, "pool_compute_input_bytes_total",
     "Bytes of objects passed to functions."},
    {"output_bytes", value<&pool::ComputeCounters::output_bytes>, "pool_compute_output_bytes_total",
     "Bytes of the outputs of functions."},
};

// Figures of one trigger; the metrics are sums for each function, which several triggers may call.
inline constexpr Figure<pool::TriggerCounters> trigger_figures[] = {
    {"calls", value<&pool::TriggerCounters::calls>, "trigger_calls_total", "Calls by triggers."},
    {"failed", value<&pool::TriggerCounters::failed>, "trigger_failures_total", "Calls by triggers that failed."},
    {"dropped", value<&pool::TriggerCounters::dropped>, "trigger_dropped_total",
     "Objects left out because the trigger's queue was full."},
    {"skipped", value<&pool::TriggerCounters::skipped>, "trigger_skipped_total",
     "Periodic calls skipped because the previous call was still running."},
};

inline constexpr std::string_view steps_help =
    "Time of tasks by step: inputs pulled, waiting, the function, outputs pushed.";
inline constexpr Figure<task::TaskCounters> task_figures[] = {
    {"sessions", value<&task::TaskCounters::sessions>, "task_sessions", "Sessions of tasks."},
    {"asked", value<&task::TaskCounters::asked>, "tasks_total", "Tasks that programs asked for."},
    {"done", value<&task::TaskCounters::done>},
    {"failed", value<&task::TaskCounters::failed>, "task_failures_total", "Tasks that failed."},
    {"cancelled", value<&task::TaskCounters::cancelled>, "task_cancelled_total", "Tasks that were cancelled."},
    {"waiting", value<&task::TaskCounters::waiting>, "tasks_waiting",
     "Tasks that wait for inputs, for other tasks or for a worker."},
    {"running", value<&task::TaskCounters::running>, "tasks_running", "Tasks whose function is running."},
    {"pulled_bytes", value<&task::TaskCounters::pulled_bytes>, "task_pulled_bytes_total",
     "Bytes of inputs that were pulled."},
    {"pushed_bytes", value<&task::TaskCounters::pushed_bytes>, "task_pushed_bytes_total",
     "Bytes of outputs that were pushed."},
    {"resident_bytes", value<&task::TaskCounters::resident_bytes>, "task_resident_bytes",
     "Bytes kept on the agent between tasks."},
    {"resident_hits", value<&task::TaskCounters::resident_hits>, "task_resident_hits_total",
     "Inputs that were already on the agent."},
    {"resident_parts", value<&task::TaskCounters::resident_parts>, "task_resident_parts_total",
     "Inputs of which only the changed part was pulled."},
    {"pulling_s", seconds<&task::TaskCounters::pulling_ns>, "task_seconds_total", steps_help, "step", "pull"},
    {"queued_s", seconds<&task::TaskCounters::queued_ns>, "task_seconds_total", steps_help, "step", "queue"},
    {"running_s", seconds<&task::TaskCounters::running_ns>, "task_seconds_total", steps_help, "step", "run"},
    {"pushing_s", seconds<&task::TaskCounters::pushing_ns>, "task_seconds_total", steps_help, "step", "push"},
};

inline constexpr std::string_view waits_help = "Time that functions waited to send and to receive messages.";
inline constexpr Figure<task::MessageCounters> message_figures[] = {
    {"sent", value<&task::MessageCounters::sent>, "task_messages_sent_total",
     "Messages that functions have sent to other lanes of their teams."},
    {"sent_bytes", value<&task::MessageCounters::sent_bytes>, "task_messages_sent_bytes_total",
     "Bytes of the messages that functions have sent."},
    {"received", value<&task::MessageCounters::received>, "task_messages_received_total",
     "Messages that functions have received."},
    {"received_bytes", value<&task::MessageCounters::received_bytes>, "task_messages_received_bytes_total",
     "Bytes of the messages that functions have received."},
    {"from_members", value<&task::MessageCounters::from_members>, "task_messages_from_members_total",
     "Messages received that came from other agents."},
    {"failed", value<&task::MessageCounters::failed>, "task_message_failures_total",
     "Messages that functions could not send or receive."},
    {"sending_s", seconds<&task::MessageCounters::sending_ns>, "task_message_wait_seconds_total", waits_help,
     "operation", "send"},
    {"receiving_s", seconds<&task::MessageCounters::receiving_ns>, "task_message_wait_seconds_total", waits_help,
     "operation", "receive"},
    {"lanes", value<&task::MessageCounters::lanes>, "task_lanes", "Lanes of programs' teams on this agent."},
    {"held", value<&task::MessageCounters::held>, "task_messages_held", "Messages sent and not received yet."},
    {"held_bytes", value<&task::MessageCounters::held_bytes>, "task_messages_held_bytes",
     "Bytes of the messages sent and not received yet."},
};

inline constexpr std::string_view calls_help = "Ended calls of functions, by outcome.";
inline constexpr Figure<plugin::PluginStatus> plugin_figures[] = {
    {"", [](const plugin::PluginStatus& each) -> FigureValue { return each.confinement.seccomp == "on"; },
     "plugin_sandboxed", "1: the kernel filters system calls of the most recently started worker."},
    {"workers", value<&plugin::PluginStatus::workers>, "plugin_workers", "Workers."},
    {"workers_max", value<&plugin::PluginStatus::workers_max>},
    {"running", value<&plugin::PluginStatus::running>, "plugin_running", "Workers that run a call."},
    {"waiting", value<&plugin::PluginStatus::waiting>, "plugin_waiting", "Calls that wait for a worker."},
    {"waiting_max", value<&plugin::PluginStatus::waiting_max>},
    {"",
     [](const plugin::PluginStatus& each) -> FigureValue { return each.failure.empty() && !each.functions.empty(); },
     "plugin_usable", "1: the most recent attempt to load it succeeded."},
};
inline constexpr Figure<plugin::PluginCounters> plugin_call_figures[] = {
    {"calls", value<&plugin::PluginCounters::calls>},
    {"done", value<&plugin::PluginCounters::done>, "plugin_calls_total", calls_help, "result", "done"},
    {"failed", value<&plugin::PluginCounters::failed>, "plugin_calls_total", calls_help, "result", "failed"},
    {"crashed", value<&plugin::PluginCounters::crashed>, "plugin_calls_total", calls_help, "result", "crashed"},
    {"timed_out", value<&plugin::PluginCounters::timed_out>, "plugin_calls_total", calls_help, "result", "timed_out"},
    {"cancelled", value<&plugin::PluginCounters::cancelled>, "plugin_calls_total", calls_help, "result", "cancelled"},
    {"unstarted", value<&plugin::PluginCounters::unstarted>, "plugin_calls_total", calls_help, "result", "unstarted"},
    {"refused", value<&plugin::PluginCounters::refused>, "plugin_refused_total",
     "Refused calls: the queue was full, or there is no such function."},
    {"starts", value<&plugin::PluginCounters::starts>, "plugin_starts_total", "Workers started."},
    {"kills", value<&plugin::PluginCounters::kills>, "plugin_kills_total",
     "Workers killed because of a deadline or an invalid message."},
    {"unexpected_exits", value<&plugin::PluginCounters::unexpected_exits>, "plugin_unexpected_exits_total",
     "Workers that crashed or ended by themselves."},
    {"running_s", seconds<&plugin::PluginCounters::running_ns>, "plugin_running_seconds_total", "Time functions ran."},
    {"waiting_s", seconds<&plugin::PluginCounters::waiting_ns>, "plugin_waiting_seconds_total",
     "Time calls waited for a worker."},
};

}  // namespace offpath::agent
