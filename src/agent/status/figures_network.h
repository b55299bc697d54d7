// The rest of figures.h: TCP connections of programs, exchanges, samples of hosts.
#pragma once

#include "agent/status/figure.h"
#include "agent/status/status.h"

namespace offpath::agent {

inline constexpr Figure<TcpStatus> tcp_figures[] = {
    {"link_up", value<&TcpStatus::link_up>},
    {"flows", value<&TcpStatus::flows>, "tcp_flows", "TCP connections, including those that are closing."},
    {"half_open", value<&TcpStatus::half_open>, "tcp_half_open",
     "Connections from peers whose handshake is not complete."},
    {"", [](const TcpStatus& tcp) -> FigureValue { return std::uint64_t{tcp.programs.size()}; }, "tcp_programs",
     "Programs with TCP connections."},
    {"", value<&TcpStatus::slow_path_is_there>, "tcp_slow_path_on_host",
     "1: a process of the host does handshakes, ARP and TIME-WAIT; 0: the agent."},
};

inline constexpr std::string_view opened_help = "TCP connections opened, by the side that began.";
inline constexpr std::string_view segments_help = "TCP segments.", payload_help = "Payload of TCP segments.";
inline constexpr std::string_view repairs_help =
    "Loss recoveries, by how the loss was detected: SACK or duplicate acknowledgements, a tail loss probe, a timeout.";
inline constexpr std::string_view marks_help =
    "Congestion marked by routers: received segments with a mark, and acknowledgements that echo marks of segments "
    "that were sent.";
inline constexpr std::string_view cookies_help =
    "SYN cookies: sent in place of a half-open connection when there were too many, and returned by peers.";
inline constexpr std::string_view resets_help = "TCP resets.";
inline constexpr Figure<tcp::StackCounters> stack_figures[] = {
    {"connected", value<&tcp::StackCounters::connected>, "tcp_connections_total", opened_help, "begun", "here"},
    {"accepted", value<&tcp::StackCounters::accepted>, "tcp_connections_total", opened_help, "begun", "by_peer"},
    {"refused", value<&tcp::StackCounters::refused>},
    {"failed", value<&tcp::StackCounters::failed>, "tcp_connections_failed_total",
     "TCP connections that ended by a reset or a timeout."},
    {"orphans_reset", value<&tcp::StackCounters::orphans_reset>, "tcp_orphans_reset_total",
     "TCP connections reset after their program had closed them, because their peer took no data or there were too "
     "many."},
    {"segments_in", value<&tcp::StackCounters::segments_in>, "tcp_segments_total", segments_help, "direction", "in"},
    {"segments_out", value<&tcp::StackCounters::segments_out>, "tcp_segments_total", segments_help, "direction", "out"},
    {"payload_in", value<&tcp::StackCounters::payload_in>, "tcp_payload_bytes_total", payload_help, "direction", "in"},
    {"payload_out", value<&tcp::StackCounters::payload_out>, "tcp_payload_bytes_total", payload_help, "direction",
     "out"},
    {"retransmitted", value<&tcp::StackCounters::retransmitted>, "tcp_retransmitted_bytes_total",
     "Payload that was retransmitted."},
    {"", value<&tcp::StackCounters::repairs>, "tcp_repairs_total", repairs_help, "told_by", "acknowledgements"},
    {"", value<&tcp::StackCounters::tail_probes>, "tcp_repairs_total", repairs_help, "told_by", "tail_probe"},
    {"", value<&tcp::StackCounters::timeouts>, "tcp_repairs_total", repairs_help, "told_by", "timeout"},
    {"", value<&tcp::StackCounters::undone>, "tcp_repairs_undone_total",
     "Loss recoveries that were undone, because the peer's acknowledgements showed that nothing had been lost."},
    {"", value<&tcp::StackCounters::duplicates_reported>, "tcp_duplicates_reported_total",
     "Acknowledgements in which peers report data that arrived twice (DSACK)."},
    {"", value<&tcp::StackCounters::paths_suspected>, "tcp_paths_suspected_total",
     "Connections whose segments were made smaller after repeated timeouts, because their path may silently drop large "
     "ones."},
    {"", value<&tcp::StackCounters::marked_in>, "tcp_congestion_marks_total", marks_help, "seen_on", "segments"},
    {"", value<&tcp::StackCounters::echoes_in>, "tcp_congestion_marks_total", marks_help, "seen_on",
     "acknowledgements"},
    {"", value<&tcp::StackCounters::accurate_ecn>, "tcp_accurate_ecn_connections_total",
     "Connections whose peers have agreed on accurate ECN (RFC 9768)."},
    {"out_of_order", value<&tcp::StackCounters::out_of_order>, "tcp_out_of_order_segments_total",
     "Segments that arrived before data that precedes them."},
    {"duplicates", value<&tcp::StackCounters::duplicates>, "tcp_duplicate_segments_total",
     "Segments of which all data had arrived before."},
    {"syns_dropped", value<&tcp::StackCounters::syns_dropped>, "tcp_syns_dropped_total",
     "Connection requests dropped because there were too many half-open connections, with SYN cookies off."},
    {"cookies_sent", value<&tcp::StackCounters::cookies_out>, "tcp_syn_cookies_total", cookies_help, "direction",
     "out"},
    {"cookies_returned", value<&tcp::StackCounters::cookies_in>, "tcp_syn_cookies_total", cookies_help, "direction",
     "in"},
    {"resets_in", value<&tcp::StackCounters::resets_in>, "tcp_resets_total", resets_help, "direction", "in"},
    {"resets_out", value<&tcp::StackCounters::resets_out>, "tcp_resets_total", resets_help, "direction", "out"},
    {"challenges", value<&tcp::StackCounters::challenges>, "tcp_challenge_acks_total",
     "Challenge acknowledgements: answers to segments that may be forged (RFC 5961)."},
};

inline constexpr std::string_view device_frames_help =
    "Frames of the network device of programs' TCP connections (tcp.device).";
inline constexpr std::string_view device_bytes_help =
    "Bytes of frames of the network device of programs' TCP connections (tcp.device).";
inline constexpr std::string_view device_drops_help =
    "Frames lost at the network device of programs' TCP connections: there was no room, or it could not send them.";
inline constexpr Figure<tcp::PortCounters> port_figures[] = {
    {"frames_in", value<&tcp::PortCounters::frames_in>, "tcp_device_frames_total", device_frames_help, "direction",
     "in"},
    {"frames_out", value<&tcp::PortCounters::frames_out>, "tcp_device_frames_total", device_frames_help, "direction",
     "out"},
    {"bytes_in", value<&tcp::PortCounters::bytes_in>, "tcp_device_bytes_total", device_bytes_help, "direction", "in"},
    {"bytes_out", value<&tcp::PortCounters::bytes_out>, "tcp_device_bytes_total", device_bytes_help, "direction",
     "out"},
    {"dropped_in", value<&tcp::PortCounters::dropped_in>, "tcp_device_drops_total", device_drops_help, "direction",
     "in"},
    {"dropped_out", value<&tcp::PortCounters::dropped_out>, "tcp_device_drops_total", device_drops_help, "direction",
     "out"},
};

inline constexpr Figure<tcp::TcpServiceCounters> tcp_service_figures[] = {
    {"without_accept_slot", value<&tcp::TcpServiceCounters::without_accept_slot>, "tcp_without_accept_slot_total",
     "Connections from peers that had to wait because their listener had no free accept slot."},
    {"without_memory", value<&tcp::TcpServiceCounters::without_memory>, "tcp_without_memory_total",
     "Connections that were refused or had to wait because receive buffers had reached their memory limit."},
    {"rings_grown", value<&tcp::TcpServiceCounters::rings_grown>, "tcp_rings_grown_total",
     "Rings of connections that were replaced by larger ones."},
    {"rings_refused", value<&tcp::TcpServiceCounters::rings_refused>, "tcp_rings_refused_total",
     "Larger rings that programs asked for and did not get because of a memory limit."},
    {"rings_shrunk", value<&tcp::TcpServiceCounters::rings_shrunk>, "tcp_rings_shrunk_total",
     "Larger rings of idle connections that were replaced by the connections' first rings."},
    {"commands", value<&tcp::TcpServiceCounters::commands>, "tcp_commands_total",
     "Commands of programs for their connections."},
    {"events", value<&tcp::TcpServiceCounters::events>, "tcp_events_total",
     "Events sent to programs about their connections."},
    {"programs_refused", value<&tcp::TcpServiceCounters::programs_refused>},
    {"programs_ended", value<&tcp::TcpServiceCounters::programs_ended>, "tcp_programs_ended_total",
     "Programs whose connections were closed for breaking the protocol."},
};

inline constexpr std::string_view frames_help =
    "Frames without a connection, passed to the slow-path process, by outcome.";
inline constexpr std::string_view handed_help = "Connections handed over by the slow-path process, by outcome.";
inline constexpr Figure<tcp::SlowPathCounters> slow_path_figures[] = {
    {"adopted", value<&tcp::SlowPathCounters::adopted>, "tcp_slow_path_connections_total", handed_help, "outcome",
     "adopted"},
    {"declined", value<&tcp::SlowPathCounters::declined>, "tcp_slow_path_connections_total", handed_help, "outcome",
     "declined"},
    {"handed_back", value<&tcp::SlowPathCounters::handed_back>},
    {"frames", value<&tcp::SlowPathCounters::frames_out>, "tcp_slow_path_frames_total", frames_help, "outcome",
     "given"},
    {"frames_dropped", value<&tcp::SlowPathCounters::frames_dropped>, "tcp_slow_path_frames_total", frames_help,
     "outcome", "dropped"},
};

inline constexpr std::string_view operations_help =
    "Operations of links to programs on other machines, by what they carry: a look for commands, payload to send, or "
    "received payload and events.";
inline constexpr std::string_view linked_bytes_help =
    "Payload over links to programs on other machines, by where it goes.";
inline constexpr std::string_view linked_carried_help =
    "All bytes over links to programs on other machines, commands, events and positions included, by the operation.";
inline constexpr Figure<tcp::AreaMirrorCounters> linked_figures[] = {
    {"looks", value<&tcp::AreaMirrorCounters::looks>, "tcp_linked_operations_total", operations_help, "carries",
     "commands"},
    {"fetches", value<&tcp::AreaMirrorCounters::fetches>, "tcp_linked_operations_total", operations_help, "carries",
     "payload"},
    {"chains", value<&tcp::AreaMirrorCounters::chains>, "tcp_linked_operations_total", operations_help, "carries",
     "events"},
    {"fetched_bytes", value<&tcp::AreaMirrorCounters::fetched_bytes>, "tcp_linked_bytes_total", linked_bytes_help, "to",
     "network"},
    {"pushed_bytes", value<&tcp::AreaMirrorCounters::pushed_bytes>, "tcp_linked_bytes_total", linked_bytes_help, "to",
     "program"},
    {"read_bytes", value<&tcp::AreaMirrorCounters::read_bytes>, "tcp_linked_carried_bytes_total", linked_carried_help,
     "by", "reads"},
    {"written_bytes", value<&tcp::AreaMirrorCounters::written_bytes>, "tcp_linked_carried_bytes_total",
     linked_carried_help, "by", "writes"},
    {"wakes", value<&tcp::AreaMirrorCounters::wakes>, "tcp_linked_wakes_total",
     "Wakes of sleeping processes on other machines."},
};

inline constexpr std::string_view core_segments_help = "TCP segments, by the agent's core.";
inline constexpr Figure<TcpStatus::Core> core_figures[] = {
    {"flows", value<&TcpStatus::Core::flows>, "tcp_core_flows", "TCP connections, by the agent's core."},
    {"segments_in", value<&TcpStatus::Core::segments_in>, "tcp_core_segments_total", core_segments_help, "direction",
     "in"},
    {"segments_out", value<&TcpStatus::Core::segments_out>, "tcp_core_segments_total", core_segments_help, "direction",
     "out"},
    {"dropped_in", value<&TcpStatus::Core::dropped_in>},
    {"busy_s", [](const TcpStatus::Core& core) { return seconds<&loop::LoopCounters::busy_ns>(core.loop); },
     "tcp_core_busy_seconds_total", "Time that loops with TCP connections were busy."},
    {"spinning_s", [](const TcpStatus::Core& core) { return seconds<&loop::LoopCounters::spinning_ns>(core.loop); }},
    {"sleeps", [](const TcpStatus::Core& core) { return value<&loop::LoopCounters::sleeps>(core.loop); }},
};

inline constexpr std::string_view rounds_help =
    "Rounds of an exchange, by whether their view had all expected members.";
inline constexpr std::string_view parcel_bytes_help =
                                      "Bytes of the messages of an exchange that this agent received and sent "
                                      "(parcels).",
                                  parcels_help = "Messages of an exchange that this agent received and sent (parcels).";
inline constexpr Figure<exchange::ExchangeCounters> exchange_figures[] = {
    {"rounds", value<&exchange::ExchangeCounters::rounds>},
    {"complete", value<&exchange::ExchangeCounters::complete>, "exchange_rounds_total", rounds_help, "view",
     "complete"},
    {"partial", value<&exchange::ExchangeCounters::partial>, "exchange_rounds_total", rounds_help, "view", "partial"},
    {"late", value<&exchange::ExchangeCounters::late>, "exchange_late_total",
     "Parcels that arrived after the end of their round."},
    {"refused", value<&exchange::ExchangeCounters::refused>, "exchange_refused_total",
     "Parcels that were invalid, or of another tree."},
    {"followed", value<&exchange::ExchangeCounters::followed>},
    {"replaced", value<&exchange::ExchangeCounters::replaced>, "exchange_leaders_replaced_total",
     "Silent leaders that were skipped."},
    {"without_value", value<&exchange::ExchangeCounters::without_value>, "exchange_rounds_without_record_total",
     "Rounds in which this agent had no record."},
    {"parcels_in", value<&exchange::ExchangeCounters::parcels_in>, "exchange_parcels_total", parcels_help, "direction",
     "in"},
    {"parcels_out", value<&exchange::ExchangeCounters::parcels_out>, "exchange_parcels_total", parcels_help,
     "direction", "out"},
    {"bytes_in", value<&exchange::ExchangeCounters::bytes_in>, "exchange_bytes_total", parcel_bytes_help, "direction",
     "in"},
    {"bytes_out", value<&exchange::ExchangeCounters::bytes_out>, "exchange_bytes_total", parcel_bytes_help, "direction",
     "out"},
    {"round_s", seconds<&exchange::ExchangeCounters::round_ns>, "exchange_round_seconds",
     "Time from the last round's start to its view."},
    {"round_s_max", seconds<&exchange::ExchangeCounters::round_ns_max>, "exchange_round_seconds_max",
     "The longest time so far from a round's start to its view."},
    {"overrun_s_max", seconds<&exchange::ExchangeCounters::overrun_ns_max>, "exchange_overrun_seconds_max",
     "The longest time that a view was late after its deadline because the agent was not running."},
};

using exchange::ExchangeService;
inline constexpr Figure<ExchangeService::ExchangeStatus> exchange_status_figures[] = {
    {"", [](const ExchangeService::ExchangeStatus& each) -> FigureValue { return std::uint64_t{each.members.size()}; },
     "exchange_members", "Members of an exchange."},
    {"programs", value<&ExchangeService::ExchangeStatus::programs>},
    {"has_source", value<&ExchangeService::ExchangeStatus::has_publisher>},
    {"leads", value<&ExchangeService::ExchangeStatus::leads>},
    {"cost_s", seconds<&ExchangeService::ExchangeStatus::cost_ns>, "exchange_cost_seconds_total",
     "Processor time that this agent spent on the exchange."},
    {"views_pushed", value<&ExchangeService::ExchangeStatus::views_pushed>, "exchange_views_pushed_total",
     "Views pushed to programs."},
    {"records_pulled", value<&ExchangeService::ExchangeStatus::records_pulled>},
    {"torn", value<&ExchangeService::ExchangeStatus::torn>, "exchange_records_torn_total",
     "Reads that overlapped the program's write of a record; they are repeated."},
    {"interval_held_s", seconds<&ExchangeService::ExchangeStatus::interval_held_ns>, "exchange_interval_held_seconds",
     "If fewer than 95 % of the views are complete within exchange.interval: the interval that could be held. "
     "Otherwise 0."},
};
// Those of exchanges in which a function decides.
inline constexpr Figure<exchange::DecisionCounters> decision_figures[] = {
    {"decisions", value<&exchange::DecisionCounters::called>, "exchange_decisions_total",
     "Calls of the function that decides on views."},
    {"decisions_failed", value<&exchange::DecisionCounters::failed>, "exchange_decisions_failed_total",
     "Calls that failed, whose view was too large, or whose answer was refused."},
    {"decisions_lost", value<&exchange::DecisionCounters::lost>, "exchange_decisions_lost_total",
     "Views that arrived during a call or its settings, and were not decided on."},
    {"settings", value<&exchange::DecisionCounters::set>, "exchange_settings_total",
     "Settings of actuators that came into force."},
    {"settings_refused", value<&exchange::DecisionCounters::unset>, "exchange_settings_refused_total",
     "Settings of actuators that failed, or were left out because others did."},
};
// The metrics of exchanges with grants.
inline constexpr Figure<ExchangeService::ExchangeStatus> grant_figures[] = {
    {"grant_total", value<&ExchangeService::ExchangeStatus::grant_total>},
    {"granted", value<&ExchangeService::ExchangeStatus::granted>, "exchange_granted",
     "Amount that this agent has granted as leader."},
    {"held", value<&ExchangeService::ExchangeStatus::held>, "exchange_held", "Amount granted to this agent."},
    {"may_grant", value<&ExchangeService::ExchangeStatus::may_grant>},
    {"has_decider",
     [](const ExchangeService::ExchangeStatus& of) -> FigureValue { return of.deciding != exchange::Deciding::no; }},
};

inline constexpr Figure<Sampled> sample_figures[] = {
    {"fresh", value<&Sampled::fresh>, "sample_fresh",
     "1: the values are current; 0: their source is silent, and they are not shown."},
    {"samples", value<&Sampled::samples>, "samples_total", "Samples taken."},
    {"failed", value<&Sampled::failed>, "samples_failed_total",
     "Samples that did not arrive in time, or were being written."},
    {"wait_s", seconds<&Sampled::wait_ns>, "sample_wait_seconds_total",
     "Time from asking for a sample to its values, summed over samples."},
    {"cpu_s", seconds<&Sampled::host_cpu_ns>, "sample_cpu_seconds_total", "Processor time of sampling at the source."},
    {"missing", value<&Sampled::missing>, "sample_missing", "Values of the newest sample that could not be read."},
};
// For hosts that are sampled over the network.
inline constexpr std::string_view datagrams_help = "Refused datagrams from hosts' addresses.";
inline constexpr Figure<exchange::SamplingCounters> datagram_figures[] = {
    {"requests", value<&exchange::SamplingCounters::requests>},
    {"retransmits", value<&exchange::SamplingCounters::retransmits>, "sample_retransmits_total",
     "Requests that were retransmitted."},
    {"late", value<&exchange::SamplingCounters::late>, "sample_datagrams_total", datagrams_help, "what", "late"},
    {"doubled", value<&exchange::SamplingCounters::doubled>, "sample_datagrams_total", datagrams_help, "what",
     "doubled"},
    {"refused", value<&exchange::SamplingCounters::refused>, "sample_datagrams_total", datagrams_help, "what",
     "refused"},
    {"sampler_restarts", value<&exchange::SamplingCounters::restarts>, "sampler_restarts_total",
     "Restarts of the host's sampler."},
};
inline constexpr Figure<Sampled> host_figures[] = {
    {"clock_ahead_s", seconds<&Sampled::clock_ahead_ns>, "sample_clock_ahead_seconds",
     "How far the host's clock is ahead of this agent's."},
    {"clock_bound_s", seconds<&Sampled::clock_bound_ns>, "sample_clock_bound_seconds",
     "Uncertainty of the clocks' difference."},
    {"clock_jumps", value<&Sampled::clock_jumps>, "sample_clock_jumps_total",
     "How often the host's clock was found to have been set."},
    {"sampler_refused", value<&Sampled::host_refused>, "sampler_refused_total",
     "Datagrams that the host's sampler did not answer."},
    {"sampler_resident_bytes", value<&Sampled::host_resident_bytes>, "sampler_resident_bytes",
     "Memory of the host's sampler."},
};

}  // namespace offpath::agent
