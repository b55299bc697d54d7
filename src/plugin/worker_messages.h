// Messages between lanes, on the side of a worker's functions. Each is an operation that the agent answers: the agent
// knows the waiting functions, their deadlines, and lanes that have ended.
//
// Several threads of a function may have operations at a time. One of the waiting threads reads the socket for all.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "plugin/packet_socket.h"

namespace offpath::plugin {

class WorkerMessages {
 public:
  WorkerMessages(int socket, PacketReader& reader) : socket_(socket), reader_(reader) {}

  void begin(CallNumber call);  // later operations belong to this call
  [[nodiscard]] Status send(std::uint32_t lane, std::uint32_t tag, Bytes message);
  // `bytes`: size of the message, also with Error::too_large, in which case it stays for a receive with more room.
  [[nodiscard]] Status receive(std::uint32_t lane, std::uint32_t tag, MutableBytes into, std::uint64_t& bytes);

 private:
  struct Answer {
    bool here = false;
    AnswerPacket packet{};
    Fd memory{};
  };
  [[nodiscard]] OperationNumber enter(Answer& answer);
  void leave(OperationNumber operation);  // the operation was not sent
  [[nodiscard]] Status wait(OperationNumber operation, Answer& answer);
  void read();  // one packet, for any waiting thread

  int socket_;
  PacketReader& reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reading_ = false, broken_ = false;
  CallNumber call_ = 0;
  OperationNumber next_ = 1;
  std::map<OperationNumber, Answer*> waiting_;
};

}  // namespace offpath::plugin
