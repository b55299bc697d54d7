// SPDX-License-Identifier: GPL-2.0-only
#include "connection.h"

#include <algorithm>

namespace offpath_lammps {

Connection::Connection(Target target, const std::vector<AtomColumn>& columns)
    : target_(std::move(target)), channel_(target_.agent, {.name = "LAMMPS"}), announced_(channel_) {
  for (const AtomColumn& each : columns) columns_.push_back({each.name, each.format});
  // So that a wrong pool is reported before the first step. The number of atoms is known then.
  stream_.emplace(channel_, target_.name, columns_,
                  offpath::StreamOptions{.pool = target_.pool,
                                         .rows_max = rows_max_,
                                         .keep = target_.keep,
                                         .ranks = target_.ranks,
                                         .rank = target_.rank});
}

std::uint64_t Connection::post(const std::vector<std::span<const std::byte>>& arrays, std::uint64_t rows,
                               const std::string& row, bool snapshot, std::chrono::nanoseconds wait) {
  if (rows > rows_max_) {
    stream_->grow(rows + rows / 4, wait);
    rows_max_ = rows + rows / 4;
  }
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
