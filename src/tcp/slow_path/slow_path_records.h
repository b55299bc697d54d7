// Reads records of wire/areas/tcp_slow_path.h: a message of a fixed size, and the bytes behind it.
#pragma once

#include <cstring>

#include "base/status.h"
#include "tcp/segment/frame.h"
#include "wire/areas/tcp_slow_path.h"

namespace offpath::tcp {

inline constexpr int records_of_a_round = 256;  // then it is the port's turn

// Reads the message, and leaves the bytes behind it in `payload`.
template <class Message>
[[nodiscard]] Result<Message> read_front(Bytes& payload) {
  Message message;
  if (payload.size() < sizeof message)
    return fail(Error::protocol, "a record has {} bytes instead of {}", payload.size(), sizeof message);
  std::memcpy(&message, payload.data(), sizeof message);
  payload = payload.subspan(sizeof message);
  return message;
}

// The message alone.
template <class Message>
[[nodiscard]] Result<Message> read_whole(Bytes payload) {
  if (payload.size() != sizeof(Message))
    return fail(Error::protocol, "a record has {} bytes instead of {}", payload.size(), sizeof(Message));
  return read_front<Message>(payload);
}

// The frame lies in `payload`.
[[nodiscard]] inline Result<ReceivedFrame> read_frame(Bytes payload) {
  OFP_ASSIGN(const wire::TcpSlowFrame head, read_front<wire::TcpSlowFrame>(payload));
  if (payload.size() > wire::tcp_slow_frame_bytes_max)
    return fail(Error::protocol, "a frame of {} bytes", payload.size());
  return ReceivedFrame{payload, head.checksum_verified == 1};
}

}  // namespace offpath::tcp
