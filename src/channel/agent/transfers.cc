#include "channel/agent/transfers.h"

#include <algorithm>

namespace offpath::channel {

namespace {

constexpr std::size_t slice_pieces_max = 1024;  // the most that one vectored read takes

}  // namespace

void Transfers::pull(std::uint64_t token, std::vector<link::ReadPiece> pieces) {
  std::erase_if(pieces, [](const link::ReadPiece& piece) { return piece.length == 0; });
  ++counters_.pulls;
  const bool empty = pieces.empty();
  pulls_.push_back(
      {.number = next_pull_++, .token = token, .pieces = std::move(pieces), .all_posted = empty, .status = {}});
}

void Transfers::fetch(std::uint64_t token, std::span<const link::ReadPiece> pieces) {
  small_.emplace_back(next_small_, token);
  link_.read(token_of(Operation::fetch, next_small_++), pieces);
}

void Transfers::push(std::uint64_t token, std::span<const link::WritePiece> pieces) {
  small_.emplace_back(next_small_, token);
  for (const auto& piece : pieces) counters_.bytes_pushed += piece.length;
  link_.write(token_of(Operation::push, next_small_++), pieces);
}

void Transfers::cancel(std::uint64_t token) {
  for (Pull& pull : pulls_)
    if (pull.token == token && !pull.all_posted) {
      pull.all_posted = true;
      pull.status = fail(Error::cancelled, "cancelled");
    }
}

bool Transfers::post(std::uint64_t& budget) {
  bool posted = false;
  for (Pull& pull : pulls_) {
    while (!pull.all_posted && budget > 0) {
      // If slices complete at once, none is outstanding after the next poll.
      if (slices_outstanding_ >= limits_.slices_outstanding) return posted;
      const std::uint64_t bytes = post_slice(pull, std::min(budget, limits_.slice_bytes));
      if (limits_.in_the_call) budget -= bytes;
      posted = true;
    }
    if (budget == 0) break;
  }
  return posted;
}

std::uint64_t Transfers::post_slice(Pull& pull, std::uint64_t bytes_max) {
  slice_.clear();
  std::uint64_t bytes = 0;
  while (pull.piece < pull.pieces.size() && bytes < bytes_max && slice_.size() < slice_pieces_max) {
    const link::ReadPiece& piece = pull.pieces[pull.piece];
    const std::uint64_t length = std::min(piece.length - pull.offset, bytes_max - bytes);
    slice_.push_back(
        {piece.region, piece.generation, piece.offset + pull.offset, piece.to + pull.offset, length, piece.unshared});
    bytes += length;
    pull.offset += length;
    if (pull.offset == piece.length) {
      ++pull.piece;
      pull.offset = 0;
    }
  }
  pull.all_posted = pull.piece == pull.pieces.size();
  ++pull.outstanding;
  ++slices_outstanding_;
  counters_.bytes_pulled += bytes;
  link_.read(token_of(Operation::pull, pull.number), slice_);
  return bytes;
}

void Transfers::end_slice(std::uint64_t number, Status status) {
  const auto pull = std::ranges::find(pulls_, number, &Pull::number);
  OFP_ASSERT(pull != pulls_.end());
  --pull->outstanding;
  --slices_outstanding_;
  if (!status && pull->status) {
    pull->status = std::move(status);
    pull->all_posted = true;  // the rest need not be read
  }
}

std::uint64_t Transfers::take_small(std::uint64_t number) {
  const auto ended = std::ranges::find(small_, number, &std::pair<std::uint64_t, std::uint64_t>::first);
  OFP_ASSERT(ended != small_.end());
  const std::uint64_t token = ended->second;
  small_.erase(ended);
  return token;
}

std::optional<Transfers::Ended> Transfers::take_pulled() {
  if (pulls_.empty() || !pulls_.front().all_posted || pulls_.front().outstanding > 0) return std::nullopt;
  Ended ended{pulls_.front().token, std::move(pulls_.front().status)};
  pulls_.pop_front();
  return ended;
}

std::vector<std::uint64_t> Transfers::abandon() {
  std::vector<std::uint64_t> tokens;
  for (const Pull& pull : std::exchange(pulls_, {})) tokens.push_back(pull.token);
  for (const auto& [number, token] : std::exchange(small_, {})) tokens.push_back(token);
  return tokens;
}

}  // namespace offpath::channel
