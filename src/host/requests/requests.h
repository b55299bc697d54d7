// Asynchronous operations: posted here, and completed by the next look of any thread. There is no thread of its own:
// every call reads the agent's answers and continues their operations. One object for each connection; usable from
// several threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "host/requests/operation.h"
#include "wire/messages/message_kinds.h"

struct ofp_request;

namespace offpath::host {

class Requests {
 public:
  struct UnderWay {
    std::unique_ptr<Operation> operation;
    ofp_request* handle = nullptr;
    std::uint64_t number = 0;
    wire::EntryKind kind{};
    std::vector<std::byte> payload;  // number of the request
    std::uint64_t ticket = 0;        // 0: there was no room for it yet
    bool over = false;
    Status outcome{};
    void (*callback)(void* user, ofp_request* request) = nullptr;
    void* user = nullptr;
  };
  using UnderWayPtr = std::shared_ptr<UnderWay>;

  explicit Requests(channel::HostEnd& end) : end_(end) {}

  // next() and callbacks return `handle`. Never waits: without room the request is posted later.
  [[nodiscard]] Result<UnderWayPtr> start(std::unique_ptr<Operation> operation, ofp_request* handle);
  // How it has ended. Error::would_block: it has not until then.
  [[nodiscard]] Status wait(const UnderWayPtr& request, TimeNs deadline);
  // Once it has ended well; how it has failed, or Error::would_block.
  [[nodiscard]] Result<Operation*> ended(const UnderWay& request);
  // An ended request without a waiter and without a callback. Error::would_block: none at the deadline.
  // Error::not_found: no request is under way.
  [[nodiscard]] Result<ofp_request*> next(TimeNs deadline);
  // The callback is called once, by the thread that finds the request ended. The event descriptor signals when to look.
  void call_back(const UnderWayPtr& request, void (*callback)(void* user, ofp_request* request), void* user);
  // Cancels the request: the agent is notified, and a later answer is released.
  void withdraw(const UnderWayPtr& request);
  // Continues answered operations, and calls back.
  void look();
  // The channel is closed: ends all requests under way.
  void close();

 private:
  struct Withdrawn {
    std::unique_ptr<Operation> operation;
    std::uint64_t ticket;
    bool told;  // the agent
  };
  using Operations = std::vector<std::unique_ptr<Operation>>;
  struct Call {  // a copy: the request may be withdrawn by another thread before it is made
    std::uint64_t number;
    void (*callback)(void* user, ofp_request* request);
    void* user;
    ofp_request* handle;
  };

  [[nodiscard]] Status compose(UnderWay& request);
  [[nodiscard]] Status post(UnderWay& request);
  void step(UnderWay& request);
  void end(UnderWay& request, Status outcome);
  void give_up(UnderWay& request);
  void sweep(Operations& gone);
  void look_once(std::vector<Call>* calls);
  void look_and_call();
  [[nodiscard]] Status sleep(std::span<const std::uint64_t> tickets, std::uint64_t bytes, TimeNs until);
  void arm();

  channel::HostEnd& end_;
  std::mutex mutex_;                                // of all that follows, and of every UnderWay
  std::map<std::uint64_t, UnderWayPtr> under_way_;  // and those that are over and have not been waited for
  std::vector<Withdrawn> withdrawn_;
  std::uint64_t last_number_ = 0;
};

}  // namespace offpath::host
