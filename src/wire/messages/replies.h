// The agent's answers. Tasks are answered by TaskDone (wire/messages/task_messages.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/coding.h"

namespace offpath::wire {

inline constexpr std::uint32_t any_reply = 0xFFFF'FFFFu;  // in Failed: no stream is concerned

struct Failed {
  std::uint32_t stream;  // any_reply if no stream is concerned
  Error code;
  std::string_view message;
};

struct Opened {
  std::uint32_t stream;
  std::uint64_t charge_base;  // see charge below
};

struct Probed {
  std::int64_t seen_ns;
};

struct Got {
  enum class How : std::uint8_t { descriptor, pushed, needs_segment, delivered, enclosed } how;
  bool arrow;
  std::uint64_t lease;   // to be released, or to be pushed if a segment is needed; 0: none
  std::uint64_t length;  // bytes of the object
  std::uint64_t rows;
  Bytes bytes{};  // the object, if it is enclosed
};

struct ListedEntry {
  std::uint64_t sequence;
  std::uint64_t bytes;
  std::uint64_t rows;  // 0 if it is not Arrow
  bool arrow;
  std::string_view row_key;
  std::string_view column_key;
  std::string_view member{};  // which answers for the row in queries; empty: the agent that was asked
};

struct Listed {
  bool more;
  std::vector<ListedEntry> entries;
  std::uint64_t view = 0;  // identifies the pool's members; 0: the agent that was asked, alone
};

struct Done {
  std::uint64_t value;
};

// How far a write of tracks is: of one member, or of all.
struct Written {
  bool over;
  std::uint32_t members, members_over;  // that write, and those whose part is written
  std::uint64_t files, rows, bytes;
};

// clang-format off: a list
#define OFFPATH_REPLY_MESSAGES(X) X(Failed) X(Opened) X(Probed) X(Got) X(Listed) X(Done) X(Written)
// clang-format on
OFFPATH_REPLY_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
