#include "plugin/worker_messages.h"

#include "base/files/file_bytes.h"
#include "base/memory_file.h"

namespace offpath::plugin {

void WorkerMessages::begin(CallNumber call) {
  const std::lock_guard lock(mutex_);
  call_ = call;
}

OperationNumber WorkerMessages::enter(Answer& answer) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < operations_max; });
  waiting_.emplace(next_, &answer);
  return next_++;
}

void WorkerMessages::leave(OperationNumber operation) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(operation);
  changed_.notify_all();
}

void WorkerMessages::read() {
  auto packet = reader_.receive(socket_, Wait::yes);
  auto message = packet && *packet ? decode_from_agent((*packet)->bytes)
                                   : Result<FromAgent>(fail(Error::peer_lost, "the agent is gone"));
  const std::lock_guard lock(mutex_);
  if (!message) {
    broken_ = true;
    return;
  }
  auto* const answer = std::get_if<AnswerPacket>(&*message);
  if (answer == nullptr || answer->call != call_) return;
  const auto waiting = waiting_.find(answer->operation);
  if (waiting == waiting_.end()) return;
  waiting->second->packet = std::move(*answer);
  if (!(*packet)->descriptors.empty()) waiting->second->memory = std::move((*packet)->descriptors.front());
  waiting->second->here = true;
}

Status WorkerMessages::wait(OperationNumber operation, Answer& answer) {
  std::unique_lock lock(mutex_);
  while (!answer.here && !broken_) {
    if (reading_) {
      changed_.wait(lock);
      continue;
    }
    reading_ = true;
    lock.unlock();
    read();
    lock.lock();
    reading_ = false;
    changed_.notify_all();
  }
  waiting_.erase(operation);
  changed_.notify_all();
  if (!answer.here) return fail(Error::peer_lost, "the agent is gone");
  if (answer.packet.error == 0) return {};
  return tl::unexpected(Failure{static_cast<Error>(answer.packet.error), answer.packet.why});
}

Status WorkerMessages::send(std::uint32_t lane, std::uint32_t tag, Bytes message) {
  if (message.size() > message_bytes_max)
    return fail(Error::too_large, "a message of {} bytes to lane {}, at most {} are allowed: send it in parts",
                message.size(), lane, message_bytes_max);
  SendNotice notice{0, 0, lane, tag, message.size(), message.size() <= message_enclosed_max, {}};
  std::vector<Fd> memory;
  if (notice.is_enclosed) {
    notice.enclosed.assign(message.begin(), message.end());
  } else {
    OFP_ASSIGN(Fd file, sealed_copy("offpath-message", message));
    memory.push_back(std::move(file));
  }
  Answer answer;
  notice.operation = enter(answer);
  notice.call = call_;
  if (Status sent = send_packet(socket_, notice, memory, Wait::yes); !sent) {
    leave(notice.operation);
    return sent;
  }
  return wait(notice.operation, answer);
}

Status WorkerMessages::receive(std::uint32_t lane, std::uint32_t tag, MutableBytes into, std::uint64_t& bytes) {
  Answer answer;
  const OperationNumber operation = enter(answer);
  if (Status sent = send_packet(socket_, ReceiveNotice{call_, operation, lane, tag, into.size()}, {}, Wait::yes);
      !sent) {
    leave(operation);
    return sent;
  }
  Status outcome = wait(operation, answer);
  bytes = answer.packet.bytes;
  if (!outcome) return outcome;
  if (bytes > into.size() || (!answer.packet.is_enclosed && !answer.memory))
    return fail(Error::protocol, "the agent sent a message of {} bytes, but there is room for {}", bytes, into.size());
  if (answer.packet.is_enclosed) {
    if (bytes != 0) std::memcpy(into.data(), answer.packet.enclosed.data(), bytes);
    return {};
  }
  outcome = read_all(answer.memory.get(), into.first(bytes), 0);
  if (!outcome) outcome = fail(outcome.error().code, "a message: {}", outcome.error().message);
  OFP_TRY(send_packet(socket_, TakenNotice{call_, operation}, {}, Wait::yes));
  return outcome;
}

}  // namespace offpath::plugin
