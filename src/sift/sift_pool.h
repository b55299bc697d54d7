// The state of one sift pool in the service (sift_service.h), and of those that are still to be made or read.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "service/effects.h"
#include "sift/sift.h"

namespace offpath::sift {

using DeferredRequest = std::function<void(TimeNs now, service::Effects& effects)>;

// Objects of this member's row that another member has.
struct ElsewhereKept {
  std::string member;
  std::uint64_t bytes = 0, rows = 0;
};

// A pool as the service has it: its split, how its definition is agreed on, and what is kept of it.
struct SiftPool {
  std::string name, text;
  uid_t user = 0;
  Settings settings;
  std::unique_ptr<Sift> sift;
  std::uint64_t newest_flush = 0;
  Effects pending{};  // of `sift`, until they are carried out
  bool carrying = false;
  // ---- for a kept pool (sift_kept.cc)
  std::string own{}, row{};         // the pool that keeps its objects, and this member's row there; empty: not kept
  std::set<std::string> unasked{};  // members that may have objects of the row, and have not answered
  std::set<std::string> asked{};    // a subset of these
  std::map<std::string, ElsewhereKept, std::less<>> elsewhere{};
  bool restoring = false;
  TimeNs due = never, opened_at = 0, tell_at = never;
  std::vector<DeferredRequest> deferred{};  // until it is agreed on and restored
  // ---- agreement on the definition (sift_agree.cc)
  bool agreed = false;
  std::map<std::string, TimeNs> heard{};         // members that have the same definition, and when they last
                                                 // confirmed it
  std::set<std::string> asking{};                // that were asked, and have not answered
  std::map<std::string, std::string> refused{};  // members that have another one, with their messages
  TimeNs refused_since = never, bound_until = 0, ask_at = 0;
  TimeNs told_at = never;            // by another member, which may know members that are unknown here
  std::set<std::string> replaced{};  // definitions with other members that it replaced
  std::string rival{};               // as in SiftService::PoolStatus, with the time until which it counts
  TimeNs rival_until = 0;
};

// A pool that will be made when enough members live.
struct AwaitedPool {
  std::string text;
  uid_t user;
  std::vector<DeferredRequest> deferred{};
};

// A pool that was found at start, whose name and settings have to be read; `again_at`: never while they are being
// read.
struct UnreadPool {
  std::string row;
  uid_t user;
  TimeNs again_at;
};

}  // namespace offpath::sift
