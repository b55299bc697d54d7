// The kinds of link the suite runs over, and pairs of ends of each: the same calls for links in real and in
// virtual time. The test's thread is the agent's.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "link/link.h"
#include "testing/link/emulated.h"
#include "wire/region.h"

namespace offpath::link {

inline constexpr wire::ChannelLayout small_layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};
inline constexpr RegionId segment(std::uint32_t number) { return wire::segment_flag | number; }

// A host that a test may kill, with its earlier announcements.
struct DoomedHost {
  static constexpr RegionId range = 5;  // where ranges can be read
  static constexpr std::uint32_t generation = 2;
  static constexpr RegionId own_segment = segment(1);
  static constexpr std::uint64_t length = 100'000;  // of both
  [[nodiscard]] static std::byte byte_at(std::uint64_t offset) {
    return static_cast<std::byte>(offset * 31 + offset / 256);
  }

  std::uint64_t base = 0;
  std::uint32_t key = 0;
};

class LinkPair {
 public:
  virtual ~LinkPair() = default;

  std::unique_ptr<HostLink> host;  // null if the host is another process
  std::unique_ptr<AgentLink> agent;

  // ---- time
  [[nodiscard]] virtual TimeNs now() const = 0;
  [[nodiscard]] TimeNs soon() const { return now() + patience_ns(); }  // longer than anything takes
  virtual void pass() = 0;                                             // a moment; operations under way continue
  // Runs `program`, the host's, while `round` is called again and again, as the agent's loop is.
  virtual void beside(const std::function<void()>& program, const std::function<void()>& round) = 0;
  // For the program: the others go on until `seen`; false if that takes too long.
  virtual bool until(const std::function<bool()>& seen) = 0;
  virtual void linger(TimeNs time) = 0;
  // For the round: sleeps until one of the agent's descriptors is readable, or for a while. Returns at once without
  // descriptors.
  virtual void sleep() = 0;

  virtual void kill_host() = 0;
  bool imports = false;  // the agent takes part in announcing ranges
  DoomedHost doomed;

  // ---- the agent's end
  std::deque<LinkEvent> events;  // polled, not taken by a test yet
  void poll();
  void watch();  // from now on poll() passes the state of the descriptors to the link, like the agent's loop
  // The first event that `wanted` accepts; fails the test and returns `closed` if none comes.
  LinkEvent await(const std::function<bool(const LinkEvent&)>& wanted);
  LinkEvent await(LinkEvent::Kind kind);
  Status finish(LinkEvent::Kind kind, std::uint64_t token);
  Status read(std::span<const ReadPiece> pieces);
  Status read(const ReadPiece& piece) { return read(std::span(&piece, 1)); }
  Status write(std::span<const WritePiece> pieces);
  Status write(const WritePiece& piece) { return write(std::span(&piece, 1)); }

  // ---- both ends
  Status announce_range(RegionId range, std::uint32_t generation, const void* base, std::uint64_t length);
  Status announce_segment(RegionId number, const SegmentMemory& memory);
  // Where the host takes keys away it waits for the agent to let go of them.
  void retire_segment(RegionId number);
  void retire_range(RegionId range, std::uint32_t generation);

 private:
  std::uint64_t next_token_ = 1'000'000;
  bool is_watched_ = false;
};

struct LinkKind {
  std::string name;
  bool mapped = false;       // the agent maps segments
  bool ranges = true;        // application memory is readable where it lies
  bool descriptors = false;  // can be handed over
  bool real_time = false;
  bool direct = false;   // ranges are read by process_vm_readv
  bool imports = false;  // the agent imports ranges one by one; the card of its tests pins nothing
  bool pinned = false;   // announced memory stays readable as it was, even if the program unmaps it
  std::function<std::unique_ptr<LinkPair>()> connect;
  std::function<std::unique_ptr<LinkPair>()> connect_doomed;
};
std::ostream& operator<<(std::ostream& out, const LinkKind& kind);

[[nodiscard]] std::vector<LinkKind> every_link();
[[nodiscard]] std::vector<LinkKind> links_where(bool (*holds)(const LinkKind& kind));
[[nodiscard]] inline std::string kind_name(const testing::TestParamInfo<LinkKind>& info) { return info.param.name; }

class OverEveryLink : public testing::TestWithParam<LinkKind> {
 protected:
  void SetUp() override {
    pair = GetParam().connect();
    ASSERT_NE(pair, nullptr);
  }
  [[nodiscard]] HostLink& host() { return *pair->host; }
  [[nodiscard]] AgentLink& agent() { return *pair->agent; }
  // After any fault the link still carries bytes both ways.
  void expect_usable();

  std::unique_ptr<LinkPair> pair;
};

// At the beginning of a test that reads ranges; the other links read them under an emulator, too.
#define OFP_NEEDS_RANGES() \
  if (GetParam().direct) OFP_NEEDS_KERNEL("process_vm_readv")

template <class T>
void expect_error(const Result<T>& result, Error code) {
  ASSERT_FALSE(result) << "no error where " << error_name(code) << " was due";
  EXPECT_EQ(result.error().code, code) << error_name(result.error().code) << ": " << result.error().message;
  EXPECT_FALSE(result.error().message.empty());
}

[[nodiscard]] inline std::byte* bytes(void* memory) { return static_cast<std::byte*>(memory); }
[[nodiscard]] inline const std::byte* bytes(const void* memory) { return static_cast<const std::byte*>(memory); }
// Bytes that differ from their neighbours and from those of other `kind`s.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t length, unsigned kind);

}  // namespace offpath::link
