// The requests that a channel may carry: for each kind its service, the programs that may send it, and its size. The
// dispatcher routes only by this table.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "service/token.h"
#include "wire/messages/message_kinds.h"
#include "wire/slot.h"

namespace offpath::service {

enum class Who : std::uint8_t {
  anyone,  // programs, and members of the agent's group
  member   // an agent of this agent's user, or of root
};

// Requests that come once in a while and wait for nothing: an agent that was woken by one sleeps again at once.
[[nodiscard]] constexpr bool is_background(wire::EntryKind kind) noexcept {
  return kind == wire::EntryKind::member_table;
}

struct RequestRow {
  wire::EntryKind kind;
  std::string_view name;
  ServiceId service;  // `channel`: the channel itself serves it
  Who who;
  std::uint64_t bytes_max;
  // Chooses the service of a kind that two services share, from the payload; null: always `service`. An unreadable
  // request goes to `service`, which refuses it.
  ServiceId (*choose)(Bytes payload) noexcept = nullptr;
  // Called first, and ignore requests that are not their own; `channel`: none.
  ServiceId also = ServiceId::channel, also_third = ServiceId::channel;
};

namespace detail {
// Pools of scheme sift:/ belong to the sift service.
ServiceId pool_by_scheme(Bytes payload) noexcept;
ServiceId drop_by_scheme(Bytes payload) noexcept;
ServiceId definition_by_scheme(Bytes payload) noexcept;
ServiceId release_by_number(Bytes payload) noexcept;  // answers of queries are numbered apart from leases
ServiceId cancel_by_subject(Bytes payload) noexcept;

using enum wire::EntryKind;
inline constexpr std::uint64_t fixed_bytes = 256;  // of requests without texts and lists
using wire::entry_bytes_max;
using wire::EntryKind;
inline constexpr RequestRow rows[] = {
    {EntryKind::announce_range, "announce_range", ServiceId::channel, Who::anyone, entry_bytes_max},
    {EntryKind::retire_range, "retire_range", ServiceId::channel, Who::anyone, entry_bytes_max},
    {EntryKind::open_stream, "open_stream", ServiceId::mover, Who::anyone, entry_bytes_max},
    {EntryKind::grow_stream, "grow_stream", ServiceId::mover, Who::anyone, fixed_bytes},
    {EntryKind::close_stream, "close_stream", ServiceId::mover, Who::anyone, fixed_bytes},
    {EntryKind::send, "send", ServiceId::mover, Who::anyone, entry_bytes_max},
    {EntryKind::move, "move", ServiceId::mover, Who::anyone, entry_bytes_max},
    {EntryKind::step_end, "step_end", ServiceId::mover, Who::anyone, entry_bytes_max},
    {EntryKind::wake_at, "wake_at", ServiceId::channel, Who::anyone, entry_bytes_max},
    {EntryKind::need_credit, "need_credit", ServiceId::mover, Who::anyone, fixed_bytes},
    {EntryKind::probe, "probe", ServiceId::channel, Who::anyone, entry_bytes_max},
    {EntryKind::pool_get, "pool_get", ServiceId::pool, Who::anyone, entry_bytes_max},
    {EntryKind::pool_list, "pool_list", ServiceId::pool, Who::anyone, entry_bytes_max},
    {EntryKind::pool_drop, "pool_drop", ServiceId::pool, Who::anyone, entry_bytes_max, pool_by_scheme},
    {EntryKind::pool_write, "pool_write", ServiceId::pool, Who::anyone, entry_bytes_max},
    {EntryKind::release, "release", ServiceId::pool, Who::anyone, fixed_bytes, release_by_number},
    {EntryKind::member_table, "member_table", ServiceId::group, Who::member, entry_bytes_max},
    {EntryKind::peer_put, "peer_put", ServiceId::pool, Who::member, entry_bytes_max},
    {EntryKind::peer_get, "peer_get", ServiceId::pool, Who::member, entry_bytes_max},
    {EntryKind::peer_deliver, "peer_deliver", ServiceId::pool, Who::member, fixed_bytes},
    {EntryKind::peer_list, "peer_list", ServiceId::pool, Who::member, entry_bytes_max},
    {EntryKind::peer_drop, "peer_drop", ServiceId::pool, Who::member, entry_bytes_max, drop_by_scheme},
    {EntryKind::peer_step_end, "peer_step_end", ServiceId::pool, Who::member, entry_bytes_max},
    {EntryKind::peer_define, "peer_define", ServiceId::pool, Who::member, entry_bytes_max, definition_by_scheme},
    {EntryKind::pool_query, "pool_query", ServiceId::query, Who::anyone, entry_bytes_max},
    {EntryKind::query_next, "query_next", ServiceId::query, Who::anyone, fixed_bytes},
    {EntryKind::pool_compute, "pool_compute", ServiceId::pool, Who::anyone, entry_bytes_max},
    {EntryKind::peer_compute, "peer_compute", ServiceId::pool, Who::member, entry_bytes_max},
    {EntryKind::push_lease, "push_lease", ServiceId::pool, Who::anyone, fixed_bytes},
    {EntryKind::peer_compare, "peer_compare", ServiceId::pool, Who::member, entry_bytes_max},
    {EntryKind::peer_piece, "peer_piece", ServiceId::sift, Who::member, entry_bytes_max},
    {EntryKind::sift_flush, "sift_flush", ServiceId::sift, Who::anyone, entry_bytes_max},
    {EntryKind::peer_flush, "peer_flush", ServiceId::sift, Who::member, entry_bytes_max},
    {EntryKind::sift_tracks, "sift_tracks", ServiceId::sift, Who::anyone, entry_bytes_max},
    {EntryKind::peer_tracks, "peer_tracks", ServiceId::sift, Who::member, entry_bytes_max},
    {EntryKind::sift_info, "sift_info", ServiceId::sift, Who::anyone, entry_bytes_max},
    {EntryKind::peer_query, "peer_query", ServiceId::query, Who::member, entry_bytes_max},
    {EntryKind::peer_query_next, "peer_query_next", ServiceId::query, Who::member, entry_bytes_max},
    {EntryKind::peer_cancel, "peer_cancel", ServiceId::pool, Who::member, fixed_bytes, cancel_by_subject},
    {EntryKind::pool_cancel, "pool_cancel", ServiceId::pool, Who::anyone, fixed_bytes, nullptr, ServiceId::query,
     ServiceId::resources},
    {EntryKind::gauges_open, "gauges_open", ServiceId::gauges, Who::anyone, entry_bytes_max},
    {EntryKind::gauges_close, "gauges_close", ServiceId::gauges, Who::anyone, fixed_bytes},
    {EntryKind::group_members, "group_members", ServiceId::group, Who::anyone, entry_bytes_max},
    {EntryKind::list_resources, "list_resources", ServiceId::resources, Who::anyone, entry_bytes_max},
    {EntryKind::peer_resources, "peer_resources", ServiceId::resources, Who::member, entry_bytes_max},
    {EntryKind::exchange_open, "exchange_open", ServiceId::exchange, Who::anyone, entry_bytes_max},
    {EntryKind::exchange_info, "exchange_info", ServiceId::exchange, Who::anyone, fixed_bytes},
    {EntryKind::exchange_wait, "exchange_wait", ServiceId::exchange, Who::anyone, fixed_bytes},
    {EntryKind::exchange_grant, "exchange_grant", ServiceId::exchange, Who::anyone, entry_bytes_max},
    {EntryKind::exchange_close, "exchange_close", ServiceId::exchange, Who::anyone, fixed_bytes},
    {EntryKind::peer_exchange, "peer_exchange", ServiceId::exchange, Who::member, entry_bytes_max},
    {EntryKind::task_open, "task_open", ServiceId::task, Who::anyone, entry_bytes_max},
    {EntryKind::task_run, "task_run", ServiceId::task, Who::anyone, entry_bytes_max},
    {EntryKind::task_wait, "task_wait", ServiceId::task, Who::anyone, fixed_bytes},
    {EntryKind::task_cancel, "task_cancel", ServiceId::task, Who::anyone, fixed_bytes},
    {EntryKind::task_close, "task_close", ServiceId::task, Who::anyone, fixed_bytes},
    {EntryKind::peer_lanes, "peer_lanes", ServiceId::message, Who::member, entry_bytes_max},
    {EntryKind::peer_receive, "peer_receive", ServiceId::message, Who::member, entry_bytes_max},
    {EntryKind::peer_message, "peer_message", ServiceId::message, Who::member, entry_bytes_max},
    {EntryKind::tcp_open, "tcp_open", ServiceId::tcp, Who::anyone, entry_bytes_max},
    {EntryKind::tcp_close, "tcp_close", ServiceId::tcp, Who::anyone, fixed_bytes},
    {EntryKind::tcp_slow_path, "tcp_slow_path", ServiceId::tcp, Who::anyone, entry_bytes_max},
    {EntryKind::tcp_process, "tcp_process", ServiceId::tcp, Who::anyone, fixed_bytes},
    {EntryKind::tcp_look, "tcp_look", ServiceId::tcp, Who::anyone, fixed_bytes},
    {EntryKind::sift_write, "sift_write", ServiceId::sift, Who::anyone, entry_bytes_max},
    {EntryKind::sift_written, "sift_written", ServiceId::sift, Who::anyone, fixed_bytes},
    {EntryKind::peer_write, "peer_write", ServiceId::sift, Who::member, entry_bytes_max},
    {EntryKind::why_waits, "why_waits", ServiceId::mover, Who::anyone, fixed_bytes},
};
}  // namespace detail

inline constexpr auto& request_rows = detail::rows;

namespace detail {
inline constexpr auto rows_by_kind = [] {
  std::array<const RequestRow*, 256> all{};
  for (const RequestRow& row : rows) all[static_cast<std::uint8_t>(row.kind)] = &row;
  return all;
}();
}  // namespace detail

// The row of a kind; null if there is no such request.
[[nodiscard]] constexpr const RequestRow* row_of(std::uint8_t kind) noexcept { return detail::rows_by_kind[kind]; }

// The service for a request of this row.
[[nodiscard]] inline ServiceId service_of(const RequestRow& row, Bytes payload) noexcept {
  return row.choose != nullptr ? row.choose(payload) : row.service;
}

}  // namespace offpath::service
