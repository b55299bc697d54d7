// Gets that are answered some time later (ofp_pool_want): asked here, taken by who asked or by who takes whatever is answered
// next. One of these for each connection; usable from several threads.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "channel/host_end.h"

struct ofp_want;

namespace offpath::host {

class Wants {
 public:
  explicit Wants(channel::HostEnd& end) : end_(end) {}

  // `wait_ns` is as in ofp_pool_get. `want` is what next() says.
  [[nodiscard]] Result<std::uint64_t> ask(std::string_view pool, std::string_view row_key, std::string_view column_key, std::int64_t wait_ns,
                                          ofp_want* want);
  // The answer, once. Error::would_block: not until then; any other error is an answer, too.
  [[nodiscard]] Result<channel::Reply> take(std::uint64_t number, TimeNs deadline);
  // One that is answered, and stays so until it is taken. Error::would_block: none until then. Error::not_found: nothing is wanted.
  [[nodiscard]] Result<ofp_want*> next(TimeNs deadline);
  // What comes for it is given back.
  void withdraw(std::uint64_t number);
  // Gives back what has come for those withdrawn.
  void sweep();

 private:
  struct Asked {
    TimeNs patience;  // then the agent will not answer any more
    ofp_want* want;
  };
  channel::HostEnd& end_;
  std::mutex mutex_;
  std::map<std::uint64_t, Asked> asked_;  // by ticket
  std::set<std::uint64_t> withdrawn_;
};

}  // namespace offpath::host
