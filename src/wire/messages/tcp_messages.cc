#include "wire/messages/tcp_messages.h"

#include "wire/messages/message_fields.h"

namespace offpath::wire {
namespace {

void fields(auto& way, Is<TcpOpen> auto& m) {
  way.begins("opening of TCP connections");
  object_at(way, m.memory);
  way(m.version, m.command_slots, m.event_slots, m.flows, m.privileged, m.user);
}

void fields(auto& way, Is<TcpClose> auto& m) {
  way.begins("end of TCP connections");
  way(m.version);
}

void fields(auto& way, Is<TcpSlowPathOpen> auto& m) {
  way.begins("opening of a slow path of TCP");
  object_at(way, m.memory);
  way(m.version, m.ring_bytes);
}

void fields(auto& way, Is<TcpProcess> auto& m) {
  way.begins("process of a program with TCP connections");
  way(m.process, m.joins);
}

void fields(auto& way, Is<TcpLook> auto& m) {
  way.begins("events of an area of TCP connections");
  way(m.zero);
}

}  // namespace

OFFPATH_TCP_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
