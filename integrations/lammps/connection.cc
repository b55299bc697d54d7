// SPDX-License-Identifier: GPL-2.0-only
#include "connection.h"

#include <algorithm>

namespace offpath_lammps {

Connection::Connection(Target target, const std::vector<AtomColumn>& columns)
    : target_(std::move(target)), channel_(target_.agent, {.name = "LAMMPS"}), announced_(channel_) {
  for (const AtomColumn& each : columns) columns_.push_back({each.name, each.format});
  open(1, {});  // so that a wrong pool is told before the first step
}

// The agent has to answer for what was posted to the stream before that stream ends.
void Connection::open(std::uint64_t rows_max, std::chrono::nanoseconds wait) {
  if (stream_) wait_stored(wait);
  stream_.reset();
  stream_.emplace(channel_, target_.name, columns_,
                  offpath::StreamOptions{.pool = target_.pool,
                                         .rows_max = rows_max,
                                         .keep = target_.keep,
                                         .ranks = target_.ranks,
                                         .rank = target_.rank});
  rows_max_ = rows_max;
  newest_ = 0;
}

std::uint64_t Connection::post(const std::vector<std::span<const std::byte>>& arrays, std::uint64_t rows,
                               const std::string& row, bool snapshot, std::chrono::nanoseconds wait) {
  if (rows > rows_max_) open(rows + rows / 4, wait);
  if (!snapshot) announced_.announce(arrays);
  std::vector<const void*> data;
  for (const auto& each : arrays) data.push_back(each.data());
  using offpath::Send;
  offpath::Stream::wait_to_send(wait);
  const std::uint64_t ticket = stream_->send(data, rows, {row, "rank" + std::to_string(target_.rank)},
                                             snapshot ? Send::wait | Send::snapshot : Send::wait);
  newest_ = stream_->step_end(row);
  return ticket;
}

void Connection::wait_stored(std::chrono::nanoseconds wait) {
  if (newest_ != 0) stream_->wait_stored(newest_, wait);
}

}  // namespace offpath_lammps
