#include "link_pair.h"

#include <algorithm>
#include <array>
#include <ostream>

#include "testing/link/connected_pair.h"

namespace offpath::link {

std::ostream& operator<<(std::ostream& out, const LinkKind& kind) { return out << kind.name; }

std::vector<LinkKind> links_where(bool (*holds)(const LinkKind& kind)) {
  std::vector<LinkKind> kinds = every_link();
  std::erase_if(kinds, [holds](const LinkKind& kind) { return !holds(kind); });
  return kinds;
}

std::vector<std::byte> pattern(std::size_t length, unsigned kind) {
  std::vector<std::byte> made(length);
  for (std::size_t i = 0; i < length; ++i) made[i] = static_cast<std::byte>(i * 7 + i / 251 + kind * 101 + 1);
  return made;
}

void LinkPair::watch() {
  is_watched_ = true;
  agent->on_watched();
}

void LinkPair::poll() {
  take_wakes(*agent);
  if (is_watched_) tell_readable(*agent);
  std::array<LinkEvent, 64> some;
  for (std::size_t count = some.size(); count == some.size();) {
    count = agent->poll(now(), some);
    for (std::size_t i = 0; i < count; ++i) events.push_back(std::move(some[i]));
  }
}

LinkEvent LinkPair::await(const std::function<bool(const LinkEvent&)>& wanted) {
  for (const TimeNs deadline = soon();; pass()) {
    poll();
    if (const auto found = std::find_if(events.begin(), events.end(), wanted); found != events.end()) {
      LinkEvent event = std::move(*found);
      events.erase(found);
      return event;
    }
    if (now() >= deadline) break;
  }
  ADD_FAILURE() << "the event did not come";
  return {LinkEvent::Kind::closed, 0, fail(Error::timeout, "no event"), Fd()};
}

LinkEvent LinkPair::await(LinkEvent::Kind kind) {
  return await([kind](const LinkEvent& event) { return event.kind == kind; });
}

Status LinkPair::finish(LinkEvent::Kind kind, std::uint64_t token) {
  return await([&](const LinkEvent& event) { return event.kind == kind && event.token == token; }).status;
}

Status LinkPair::read(std::span<const ReadPiece> pieces) {
  const std::uint64_t token = next_token_++;
  agent->read(token, pieces);
  return finish(LinkEvent::Kind::read_done, token);
}

Status LinkPair::write(std::span<const WritePiece> pieces) {
  const std::uint64_t token = next_token_++;
  agent->write(token, pieces);
  const Status written = finish(LinkEvent::Kind::write_done, token);
  if (!written || !agent->traits().ordered) return written;
  // It may be on its way; a read that is posted later sees it.
  std::byte byte{};
  return read({wire::channel_segment, 0, 0, &byte, 1});
}

Status LinkPair::announce_range(RegionId range, std::uint32_t generation, const void* base, std::uint64_t length) {
  Result<std::uint32_t> key = 0;
  const auto program = [&] { key = host->announce_range(range, generation, base, length); };
  if (imports)
    beside(program, [this] { poll(); });
  else
    program();
  if (!key) return tl::unexpected<Failure>(std::move(key).error());
  return agent->attach_range(range, generation, reinterpret_cast<std::uint64_t>(base), length, *key);
}

Status LinkPair::announce_segment(RegionId number, const SegmentMemory& memory) {
  Status announced;
  beside([&] { announced = host->announce_segment(number, memory, soon()); }, [this] { poll(); });
  return announced;
}

void LinkPair::retire_segment(RegionId number) {
  beside([&] { host->retire_segment(number); }, [this] { poll(); });
}

void LinkPair::retire_range(RegionId range, std::uint32_t generation) {
  beside([&] { host->retire_range(range, generation); }, [this] { poll(); });
}

void OverEveryLink::expect_usable() {
  const auto sent = pattern(100, 77);
  auto back = pattern(100, 78);
  ASSERT_TRUE(pair->write({wire::channel_segment, 8000, sent.data(), sent.size()}));
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), host().channel_memory().begin() + 8000));
  ASSERT_TRUE(pair->read({wire::channel_segment, 0, 8000, back.data(), back.size()}));
  EXPECT_EQ(back, sent);
}

}  // namespace offpath::link
