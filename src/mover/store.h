// The destination of the mover's frames: the interface of pools and sift pools.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "service/service.h"

namespace offpath::mover {

using service::Client;
using service::Effects;
using service::FramePtr;

// `later`: the put is completed by a StoredEffect with the same token, in every case.
enum class Stored { now, later };

// Implemented by src/pool and src/sift.
class Store {
 public:
  struct Place {
    std::string pool, row_key, column_key;
    uid_t user;
    std::uint64_t keep;  // frames that the pool keeps; 0: all
    bool hidden;         // until the step has ended on all ranks
  };
  virtual ~Store() = default;
  // Returns the name under which frames are put, once for each stream: options of the pool's name are read here, not by
  // every put. Fails if this user may not put objects there, or the name is invalid.
  [[nodiscard]] virtual Result<std::string> admit(const std::string& pool, uid_t user, Effects& effects) = 0;
  // `place.pool` comes from admit().
  [[nodiscard]] virtual Result<Stored> put(const Place& place, FramePtr frame, std::uint64_t token, TimeNs now,
                                           Effects& effects) = 0;
  // For an update in place; Error::not_found names the keys.
  [[nodiscard]] virtual Result<FramePtr> find(const std::string& pool, const std::string& row_key,
                                              const std::string& column_key, uid_t user) = 0;
  // A rank has ended a step; when the last of `ranks` has, its frames become visible. Error::too_large: too many steps
  // wait for their ranks.
  [[nodiscard]] virtual Status end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank,
                                        std::uint32_t ranks, TimeNs now, Effects& effects) = 0;
  // The program of a rank has closed its stream to the pool, or has ended; it has opened one.
  virtual void rank_ended(const std::string& /*pool*/, std::uint32_t /*rank*/, const Client& /*client*/) {}
  virtual void rank_began(const std::string& /*pool*/, std::uint32_t /*rank*/) {}
  // The reason of a waiting put; empty if unknown.
  [[nodiscard]] virtual std::string why_waits(std::uint64_t /*token*/) const { return {}; }
  // An admitted stream was closed. `pool` comes from admit().
  virtual void leave(const std::string& pool) = 0;
};

}  // namespace offpath::mover
