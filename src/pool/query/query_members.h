// The members that have a query's rows, as the service of queries sees them (Pools implement it; tests have doubles).
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

  // The objects to read, in order, where all rows lie here; failures are the query's.
  [[nodiscard]] virtual Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view row_glob,
                                                                std::string_view column_glob, uid_t user) = 0;

  // The members with rows of a pool that lies on others than this one alone; nothing, if it does not.
  struct Spread {
    std::string text;                  // the pool's name with its options
    std::uint64_t view = 0;            // stands for the members
    std::vector<std::string> members;  // in the order of names
    std::uint32_t replicas = 1;        // of each row
    std::vector<std::string> order{};  // columns by which each member's rows are ordered, and the answer's are to be
    uid_t owner = 0;                   // whose pool it is here
  };
  [[nodiscard]] virtual Result<std::optional<Spread>> spread(const std::string& pool) = 0;

  // Members that were lost with rows of the pool, as far as is known here.
  [[nodiscard]] virtual std::vector<std::string> lost(const std::string& pool) const = 0;

  // Of the objects here, those whose rows have this member for their first owner; none is no failure.
  // Error::would_block: members are changing, so that a row might be read twice or not at all.
  struct Part {
    std::string pool, row_glob, column_glob;
    uid_t user = 0;
    std::uint64_t view = 0;
    uid_t owner = 0;  // whose pool it is where the query began
  };
  [[nodiscard]] virtual Result<std::vector<QuerySource>> choose_part(const Part& part, service::Effects& effects) = 0;

  // Counts one request of that user with so many bytes until the charge is destroyed. Error::too_large: too many wait.
  [[nodiscard]] virtual Result<WaitCharge> charge(uid_t user, std::uint64_t bytes) = 0;
  // Asks another member; failures name it. `frame`, or where there is none `done`, is what it answered.
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
  // Nobody wants that part any more.
  virtual void cancel_part(const std::string& member, std::uint64_t number, TimeNs now, service::Effects& effects) = 0;

  // Answers a request of a program or of a member with a frame.
  virtual void answer(const FrameTable::Get& get, const FramePtr& frame, TimeNs now, service::Effects& effects) = 0;

 protected:
  ~QueryMembers() = default;
};

}  // namespace offpath::pool
