// The members with a query's rows, as the query service sees them (implemented by Pools, and by doubles in tests).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "pool/query/query.h"
#include "pool/table/frame_table.h"
#include "service/effects.h"
#include "wire/messages/message_kinds.h"

namespace offpath::pool {

class QueryMembers {
 public:
  [[nodiscard]] virtual const std::string& self() const noexcept = 0;

  // The objects to read, in order, if all rows are here; failures are the query's.
  [[nodiscard]] virtual Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view row_glob,
                                                                std::string_view column_glob, uid_t user) = 0;

  // The members of a pool with other members than this one; empty if this member has all rows.
  struct Spread {
    std::string text;                  // the pool's name with its options
    std::uint64_t view = 0;            // identifies the list of members
    std::vector<std::string> members;  // in the order of names
    std::uint32_t replicas = 1;        // of each row
    std::vector<std::string> order{};  // columns that order each member's rows, and the answer's
    uid_t owner = 0;                   // the pool's owner here
  };
  [[nodiscard]] virtual Result<std::optional<Spread>> spread(const std::string& pool) = 0;

  // Members that were lost with rows of the pool, as far as this agent knows.
  [[nodiscard]] virtual std::vector<std::string> lost(const std::string& pool) const = 0;

  // The objects here whose rows have this member as first owner; an empty result is not an error. Error::would_block:
  // members are changing, so a row might be read twice or missed.
  struct Part {
    std::string pool, row_glob, column_glob;
    uid_t user = 0;
    std::uint64_t view = 0;
    uid_t owner = 0;  // the pool's owner at the member where the query began
  };
  [[nodiscard]] virtual Result<std::vector<QuerySource>> choose_part(const Part& part, service::Effects& effects) = 0;

  // Charges one request of that user with so many bytes until the result is destroyed. Error::too_large: too many wait.
  [[nodiscard]] virtual Result<WaitCharge> charge(uid_t user, std::uint64_t bytes) = 0;
  // Asks another member; failures name it. The answer is `frame`, or `done` without a frame.
  struct Reply {
    FramePtr frame;
    std::uint64_t done = 0;
  };
  using Fetched = std::function<void(Result<Reply> reply, TimeNs now, service::Effects& effects)>;
  using Compose =
      std::function<void(const service::AskedMemory& memory, std::uint64_t delivery, std::vector<std::byte>& payload)>;
  virtual void fetch_part(std::string member, uid_t user, wire::EntryKind kind, TimeNs deadline,
                          std::vector<std::byte> body, Compose compose, Fetched fetched, TimeNs now,
                          service::Effects& effects) = 0;
  // The part is not needed any more.
  virtual void cancel_part(const std::string& member, std::uint64_t number, TimeNs now, service::Effects& effects) = 0;

  // Answers a request of a program or of a member with a frame.
  virtual void answer(const FrameTable::Get& get, const FramePtr& frame, TimeNs now, service::Effects& effects) = 0;

 protected:
  ~QueryMembers() = default;
};

}  // namespace offpath::pool
