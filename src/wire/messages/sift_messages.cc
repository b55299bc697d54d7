#include "wire/messages/sift_messages.h"

#include <algorithm>

#include "wire/limits.h"
#include "wire/messages/message_fields.h"

namespace offpath::wire {
namespace {

void fields(auto& way, Is<PeerPiece> auto& m) {
  way.begins("piece of a member");
  way(m.user, m.offer);
  object_at(way, m.object);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.bytes(m.header);
}

void fields(auto& way, Is<SiftFlush> auto& m) {
  way.begins("flush");
  way(m.wait_ns);
  way.text(m.pool, pool_bytes_max, "the pool's name");
}

void fields(auto& way, Is<PeerFlush> auto& m) {
  way.begins("flush of a member");
  way(m.user, m.number, m.wait_ns);
  way.text(m.pool, pool_bytes_max, "the pool's name");
}

// The selection of tracks.
void tracks(auto& way, auto& m) {
  way(m.element, m.all, m.first_step, m.last_step);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  auto count = static_cast<std::uint32_t>(m.identifiers.size());
  way(count);
  way.counted(m.identifiers, count);
}
Status check_tracks(const auto& m) {
  if (m.identifiers.size() > tracks_asked_max)
    return fail(Error::too_large, "{} identifiers are requested, at most {} are allowed at a time",
                m.identifiers.size(), tracks_asked_max);
  if (!std::ranges::is_sorted(m.identifiers))
    return fail(Error::invalid, "the requested identifiers are not ascending");
  return {};
}

void fields(auto& way, Is<SiftTracks> auto& m) {
  way.begins("request for tracks");
  tracks(way, m);
}
Status check(const SiftTracks& m) { return check_tracks(m); }

void fields(auto& way, Is<PeerTracks> auto& m) {
  way.begins("request of a member for tracks");
  way(m.user, m.delivery);
  object_at(way, m.inbox);
  way.text(m.reader, name_bytes_max, "the reader");
  tracks(way, m);
}
Status check(const PeerTracks& m) { return check_tracks(m); }

void fields(auto& way, Is<SiftInfo> auto& m) {
  way.begins("question about a sift pool");
  way.text(m.pool, pool_bytes_max, "the pool's name");
}

void fields(auto& way, Is<SiftWrite> auto& m) {
  way.begins("write of tracks");
  way(m.wait_ns);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.directory, directory_bytes_max, "the directory");
}

void fields(auto& way, Is<SiftWritten> auto& m) {
  way.begins("question about a write of tracks");
  way(m.number, m.wait_ns, m.cancel);
}

void fields(auto& way, Is<PeerWrite> auto& m) {
  way.begins("write of a member");
  way.choice(m.what, PeerWrite::What::abandon, "step");
  way(m.user, m.asker, m.process, m.number, m.wait_ns);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.directory, directory_bytes_max, "the directory");
}

}  // namespace

OFFPATH_SIFT_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
