// Sockets of IPv6: the choice of offloaded ones, their addresses, and the families of their ports. Against a fake
// agent, which has an address of each family.
#include <linux/in6.h>

#include <array>
#include <span>
#include <string>

#include "sockets/calls.h"
#include "sockets/kernel_terms.h"
#include "sockets/left_to_kernel.h"
#include "testing/sockets/offloaded.h"

namespace offpath::sockets {
namespace {

class Families : public Offloaded {
 protected:
  void SetUp() override {
    if (tcp6() < 0) GTEST_SKIP() << "the kernel has no IPv6";
  }
  int tcp6(bool only = false) {
    const int fd = keep(::socket(AF_INET6, SOCK_STREAM, 0));
    EXPECT_TRUE(!only || set(fd, IPV6_V6ONLY, 1) == 0);
    return fd;
  }
  static sockaddr_in6 name6_of(const char* address, std::uint16_t port) {
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(port);
    EXPECT_EQ(::inet_pton(AF_INET6, address, &name.sin6_addr), 1);
    return name;
  }
  static int connect6(int fd, const char* address, std::uint16_t port = 80) {
    const sockaddr_in6 name = name6_of(address, port);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name);
  }
  static int bind6(int fd, const char* address, std::uint16_t port = listened_port) {
    const sockaddr_in6 name = name6_of(address, port);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name);
  }
  static int set(int fd, int name, int value) { return ::setsockopt(fd, IPPROTO_IPV6, name, &value, sizeof value); }
  static int option(int fd, int name, int level = IPPROTO_IPV6) {
    int value = -1;
    socklen_t length = sizeof value;
    return ::getsockopt(fd, level, name, &value, &length) == 0 ? value : -errno;
  }
  template <class Call>
  static std::string told(int fd, const Call& call, socklen_t room = sizeof(sockaddr_in6)) {
    sockaddr_in6 name{};
    if (call(fd, reinterpret_cast<sockaddr*>(&name), &room) != 0) return "errno " + std::to_string(errno);
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET6, &name.sin6_addr, text.data(), text.size());
    return std::string(text.data()) + " " + std::to_string(room);
  }
  // Its listener, and the families of which the agent was asked for the port.
  int listener(int fd, const char* address, std::uint16_t& families) {
    EXPECT_EQ(bind6(fd, address), 0) << errno;
    EXPECT_EQ(::listen(fd, 4), 0) << errno;
    EXPECT_TRUE(is_offloaded(fd));
    families = agent().families_of(listened_port);
    return fd;
  }
};

TEST_F(Families, AConnectionToEitherFamilyIsOffloaded) {
  const int native = tcp6(), mapped = tcp6(), loopback = tcp6(), link_local = tcp6(), unnamed = tcp6();
  ASSERT_EQ(connect6(native, "fd09::1"), 0) << errno;
  EXPECT_TRUE(is_offloaded(native));
  EXPECT_EQ(told(native, ::getpeername), "fd09::1 28");
  EXPECT_EQ(told(native, ::getsockname), "fd09::2 28");
  EXPECT_EQ(told(native, ::getpeername, 8), ":: 28") << "what does not fit is cut off";
  ASSERT_EQ(connect6(mapped, "::ffff:10.9.0.1"), 0);
  EXPECT_TRUE(is_offloaded(mapped));
  EXPECT_EQ(told(mapped, ::getpeername), "::ffff:10.9.0.1 28");
  EXPECT_EQ(told(mapped, ::getsockname), "::ffff:10.9.0.2 28");
  for (const int fd : {native, mapped}) EXPECT_EQ(option(fd, SO_DOMAIN, SOL_SOCKET), AF_INET6);
  static_cast<void>(connect6(loopback, "::1", 1));
  static_cast<void>(connect6(link_local, "fe80::1"));
  set_non_blocking(unnamed);
  static_cast<void>(connect6(unnamed, "fd0a::1"));
  for (const int fd : {loopback, link_local, unnamed}) EXPECT_FALSE(is_offloaded(fd));
  EXPECT_NE(report().find("left to the kernel (link-local)"), std::string::npos) << report();
}

TEST_F(Families, APortHasTheFamiliesOfItsAddress) {
  constexpr struct {
    const char* address;
    bool only;
    std::uint16_t families;
    int is_only;
  } known[] = {{"::", false, wire::tcp_families, 0},
               {"::", true, wire::tcp_for_ipv6, 1},
               {"fd09::2", false, wire::tcp_for_ipv6, 1},  // as the kernel's bind sets it
               {"::ffff:10.9.0.2", false, wire::tcp_for_ipv4, 0},
               {"::ffff:0.0.0.0", false, wire::tcp_for_ipv4, 0}};
  for (const auto& each : known) {
    std::uint16_t families = 0;
    const int fd = listener(tcp6(each.only), each.address, families);
    EXPECT_EQ(families, each.families) << each.address;
    EXPECT_EQ(told(fd, ::getsockname), std::string(each.address) + " 28");
    EXPECT_EQ(option(fd, IPV6_V6ONLY), each.is_only) << each.address;
    EXPECT_EQ(error_of(set(fd, IPV6_V6ONLY, 1)), EINVAL) << "a socket with a port keeps it";
    ::close(fd);
  }
  const int four = tcp();
  ASSERT_EQ(bind(four, "0.0.0.0", listened_port), 0);
  ASSERT_EQ(::listen(four, 4), 0);
  EXPECT_EQ(agent().families_of(listened_port), wire::tcp_for_ipv4);
}

TEST_F(Families, AListenerForBothShowsPeersInOneForm) {
  std::uint16_t families = 0;
  const int fd = listener(tcp6(), "::", families);
  const auto accepted = [&](wire::IpAddress peer) {
    agent().connect_to(listened_port, peer);
    const int made = keep(::accept(fd, nullptr, nullptr));
    return told(made, ::getpeername) + ", " + told(made, ::getsockname);
  };
  EXPECT_EQ(accepted({{0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}), "fd09::1 28, fd09::2 28");
  EXPECT_EQ(accepted(wire::ipv4(0x0a090001)), "::ffff:10.9.0.1 28, ::ffff:10.9.0.2 28");
}

TEST_F(Families, ABoundSocketConnectsToItsOwnFamily) {
  const int four = tcp6(), six = tcp6(), only = tcp6(true), both = tcp6();
  ASSERT_EQ(bind6(four, "::ffff:10.9.0.2", 0), 0);
  EXPECT_EQ(error_of(connect6(four, "fd09::1")), EAFNOSUPPORT);
  ASSERT_EQ(bind6(six, "fd09::2", 0), 0);
  EXPECT_EQ(told(six, ::getsockname), "fd09::2 28");
  EXPECT_EQ(error_of(set(six, IPV6_V6ONLY, 1)), EINVAL);
  EXPECT_EQ(error_of(bind6(six, "fd09::2", 0)), EINVAL);
  ASSERT_EQ(connect6(six, "fd09::1"), 0);
  EXPECT_TRUE(is_offloaded(six));
  EXPECT_EQ(error_of(connect6(only, "::ffff:10.9.0.1")), ENETUNREACH);
  EXPECT_EQ(error_of(bind6(only, "::ffff:10.9.0.2")), EINVAL);
  ASSERT_EQ(bind6(both, "::"), 0);
  EXPECT_EQ(connect6(both, "::ffff:10.9.0.1"), 0);
  EXPECT_TRUE(is_offloaded(both));
}

TEST_F(Families, ASocketThatFailedMayBecomeOneOfIpv6Alone) {
  const int fd = tcp6();
  agent().fail_next_connection(wire::TcpError::refused);
  EXPECT_EQ(error_of(connect6(fd, "fd09::1")), ECONNREFUSED);
  ASSERT_EQ(set(fd, IPV6_V6ONLY, 1), 0);
  EXPECT_EQ(option(fd, IPV6_V6ONLY), 1);
  EXPECT_EQ(error_of(connect6(fd, "::ffff:10.9.0.1")), ENETUNREACH);
  ASSERT_EQ(connect6(fd, "fd09::1"), 0);
  EXPECT_EQ(error_of(set(fd, IPV6_V6ONLY, 0)), EINVAL);
}

TEST_F(Families, AConnectionOfIpv4BecomesASocketOfIpv4) {
  const int native = tcp6(), mapped = tcp6();
  ASSERT_EQ(connect6(native, "fd09::1"), 0);
  ASSERT_EQ(connect6(mapped, "::ffff:10.9.0.1"), 0);
  EXPECT_EQ(option(mapped, IPV6_ADDRFORM), AF_INET6);
  EXPECT_EQ(error_of(set(native, IPV6_ADDRFORM, AF_INET)), EADDRNOTAVAIL);
  EXPECT_EQ(error_of(set(mapped, IPV6_ADDRFORM, AF_INET6)), EINVAL);
  ASSERT_EQ(set(mapped, IPV6_ADDRFORM, AF_INET), 0);
  EXPECT_EQ(option(mapped, SO_DOMAIN, SOL_SOCKET), AF_INET);
  EXPECT_EQ(option(mapped, IPV6_V6ONLY), -EOPNOTSUPP);
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  ASSERT_EQ(::getpeername(mapped, reinterpret_cast<sockaddr*>(&peer), &length), 0);
  EXPECT_EQ(length, sizeof peer);
  EXPECT_EQ(ntohl(peer.sin_addr.s_addr), 0x0a090001u);
}

TEST_F(Families, OptionsOfIpv6AreKeptAndChecked) {
  const int fd = tcp6(), four = tcp();
  ASSERT_EQ(set(fd, IPV6_UNICAST_HOPS, 7), 0);
  ASSERT_EQ(connect6(fd, "fd09::1"), 0);
  EXPECT_EQ(option(fd, IPV6_UNICAST_HOPS), 7) << "it was set before the connection was offloaded";
  for (const auto& [name, value] : {std::pair{IPV6_TCLASS, 0x20},
                                    {IPV6_RECVTCLASS, 1},
                                    {IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO},
                                    {IPV6_DONTFRAG, 1},
                                    {IPV6_UNICAST_HOPS, 3}}) {
    EXPECT_EQ(set(fd, name, value), 0) << name;
    EXPECT_EQ(option(fd, name), value) << name;
  }
  for (const auto& [name, value] : {std::pair{IPV6_TCLASS, 256}, {IPV6_UNICAST_HOPS, 256}, {IPV6_MTU_DISCOVER, 99}})
    EXPECT_EQ(error_of(set(fd, name, value)), EINVAL) << name;
  ASSERT_EQ(set(fd, IPV6_ADDR_PREFERENCES, IPV6_PREFER_SRC_TMP), 0);
  EXPECT_EQ(option(fd, IPV6_ADDR_PREFERENCES), IPV6_PREFER_SRC_TMP | IPV6_PREFER_SRC_HOME) << "as the kernel shows it";
  EXPECT_EQ(error_of(set(fd, 9999, 1)), ENOPROTOOPT);
  ASSERT_EQ(connect(four, "10.9.0.1", 80), 0);
  EXPECT_EQ(error_of(set(four, IPV6_UNICAST_HOPS, 3)), ENOPROTOOPT);
}

TEST(NamedBy, EveryAddressOfIpv4IsBoundWithoutAFamilyToo) {
  sockaddr_in in{};
  in.sin_port = htons(8080);
  const Bytes address = std::as_bytes(std::span(&in, 1));
  const Named bound = named_by(NamedBy::bind, AF_INET, false, address);
  EXPECT_EQ(bound.error, 0);
  EXPECT_EQ(bound.at.port, 8080);
  EXPECT_EQ(named_by(NamedBy::bind, AF_INET6, false, address).error, EINVAL);
  in.sin_addr.s_addr = htonl(0x0a000001);
  EXPECT_EQ(named_by(NamedBy::bind, AF_INET, false, address).error, EAFNOSUPPORT);
}

}  // namespace
}  // namespace offpath::sockets
