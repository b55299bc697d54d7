#include "sift/tracks/track_reads.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "sift/tracks/track_reader.h"
#include "wire/messages/replies.h"

namespace offpath::sift {

namespace {

// For an answer that is made at once, in less time than a job takes (100 us).
constexpr std::size_t identifiers_at_once_max = 16;
constexpr std::uint64_t rows_at_once_max = 1024;

}  // namespace

Status TrackReads::read(std::uint64_t number, pool::Get get, Wanted wanted, TrackSnapshot tracks,
                        const FrameMemory& memory, TimeNs now, service::Effects& effects) {
  const bool at_once = !wanted.all && wanted.identifiers.size() <= identifiers_at_once_max &&
                       tracks.rows_of(wanted.identifiers).value_or(UINT64_MAX) <= rows_at_once_max;
  TrackQuery query{.identifiers = {}, .first_step = wanted.first_step, .last_step = wanted.last_step};
  if (!wanted.all) query.identifiers = std::move(wanted.identifiers);
  const std::uint64_t row_bytes = tracks.form() ? tracks.form()->rows->row_bytes() + sizeof(std::int64_t) : 1;
  const std::uint64_t rows_max = std::max<std::uint64_t>(bytes_max_ / row_bytes, 1);
  const auto snapshot = std::make_shared<TrackSnapshot>(std::move(tracks));
  const auto frame = std::make_shared<service::FramePtr>();
  auto read = [snapshot, query = std::move(query), rows_max, frame, name = get.pool, memory]() mutable -> Status {
    TrackReader reader(std::move(*snapshot), std::move(query), rows_max);
    OFP_ASSIGN(*frame, reader.next(memory));
    if (*frame == nullptr) return fail(Error::not_found, "pool \"{}\" has no such tracks", name);
    OFP_ASSIGN(const service::FramePtr more, reader.next(memory));
    if (more != nullptr)
      return fail(Error::too_large,
                  "pool \"{}\": these tracks have more than the {} rows of an answer; ask for fewer steps", name,
                  (*frame)->rows);
    return {};
  };
  if (at_once) {
    OFP_TRY(read());
    answer_(get, *frame, now, effects);
    return {};
  }
  reads_.emplace(number, Read{std::move(get), frame});
  effects.push_back(service::JobEffect{service::token_of(service::ServiceId::sift, number), std::move(read)});
  return {};
}

void TrackReads::on_job(std::uint64_t number, const Status& status, TimeNs now, service::Effects& effects) {
  const auto node = reads_.extract(number);
  const Read& read = node.mapped();
  if (status)
    answer_(read.get, *read.frame, now, effects);
  else
    effects.push_back(service::FailEffect{read.get.channel, read.get.ticket, wire::any_reply, status.error()});
}

}  // namespace offpath::sift
