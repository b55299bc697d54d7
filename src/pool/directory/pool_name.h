// A pool's name as users write it: `policy:/name?option=value&…`. It determines the places of rows and the pool's
// bounds; programs contain neither.
//
//   local:/particles                              on the agent that is asked
//   hash:/particles?members=dpu*&replicas=2       spread over members by rendezvous hashing of the row
//   rank:/blocks                                  by the number at the end of the row: that modulo members
//   tag:/blocks                                   by the part of the row in braces, "{7}step0": a number modulo
//                                                 members, else hashed
//
//   option     value                                              without it
//   members    patterns of members' names, by commas              all
//   replicas   members that have a copy of each row, 1 to 8       1
//   min_copies copies there have to be before a put is stored      1
//   budget     bytes on each member; more waits                   the agent's memory
//   ttl        for how long an object lives, from 1 ms            for ever
//   overwrite  yes, or no: another put of the same keys fails     yes
//   readers    users besides the owner who may read, by commas    none
//   spill      on: objects beyond budget and memory go to disk;   off
//              durable: an object is stored when it is on disk
//
// Read this first in src/pool/directory, then placement.h (which members have a row), put_id.h (which put is later) and
// glob.h (patterns).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::pool {

enum class Policy : std::uint8_t { local, hash, rank, tag };

enum class Spill : std::uint8_t { off, on, durable };

struct PoolOptions {
  std::vector<std::string> members{"*"};
  std::uint32_t replicas = 1;
  std::uint32_t min_copies = 1;    // of replicas
  std::uint64_t budget_bytes = 0;  // 0: as much as the agent has
  TimeNs ttl_ns = 0;               // 0: for ever
  bool overwrite = true;
  std::vector<uid_t> readers{};
  Spill spill = Spill::off;
  bool operator==(const PoolOptions&) const = default;
};
inline constexpr std::uint32_t replicas_max = 8;

struct PoolName {
  std::string name;  // policy and path, without options: the pool's identity
  Policy policy = Policy::local;
  PoolOptions options;
  bool has_options = false;

  // The name with all options that differ from their defaults.
  [[nodiscard]] std::string text() const;
};

// Part of the names of pools in which services keep objects of their own (sift/kept/kept_store.h). Their objects are
// trusted, so no program may name such a pool.
inline constexpr std::string_view kept_mark = ".kept-";
[[nodiscard]] bool is_reserved(std::string_view name) noexcept;
// Checks a name that a program gave, with its options or without. Error::denied: it is reserved.
[[nodiscard]] Status check_not_reserved(std::string_view text);

// Errors name the option, its value and the allowed values.
[[nodiscard]] Result<PoolName> parse_pool_name(std::string_view text);

}  // namespace offpath::pool
