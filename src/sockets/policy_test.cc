#include "sockets/policy.h"

#include <gtest/gtest.h>

namespace offpath::sockets {
namespace {

constexpr wire::IpAddress own = wire::ipv4(0x0a090002), kernels = wire::ipv4(0x0a090001),
                          local = wire::ipv4(0x7f000001), every = wire::ipv4(0);
constexpr wire::IpAddress every6{}, local6{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
    own6{{0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}},
    kernels6{{0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
    remote6{{0x20, 1, 0xd, 0xb8, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}, link_local6{{0xfe, 0x80, 0, 0, 1}},
    group6{{0xff, 2, 1}};

TEST(SocketPolicy, WithoutAnAgentNothingIsOffloaded) {
  const auto policy = read_policy(nullptr, nullptr, nullptr, nullptr);
  ASSERT_TRUE(policy);
  EXPECT_FALSE(policy->listens({every, 80}));
  EXPECT_FALSE(policy->connects(kernels));
}

TEST(SocketPolicy, EverythingButLoopbackUnlessSaidOtherwise) {
  const auto policy = read_policy("unix:/a", "10.9.0.2", nullptr, nullptr);
  ASSERT_TRUE(policy);
  EXPECT_TRUE(policy->listens({every, 80}));
  EXPECT_TRUE(policy->listens({own, 80}));
  EXPECT_FALSE(policy->listens({local, 80}));
  EXPECT_FALSE(policy->listens({kernels, 80}));
  EXPECT_TRUE(policy->connects(kernels));
  EXPECT_FALSE(policy->connects(local));
  EXPECT_FALSE(policy->connects(every));
}

TEST(SocketPolicy, PortsAndNetworksAreNamed) {
  const auto policy = read_policy("unix:/a", nullptr, "80,8000", "10.9.0.0/24,192.168.1.7");
  ASSERT_TRUE(policy);
  EXPECT_TRUE(policy->listens({every, 8000}));
  EXPECT_FALSE(policy->listens({every, 81}));
  EXPECT_TRUE(policy->connects(kernels));
  EXPECT_FALSE(policy->connects(wire::ipv4(0x0a090101)));
  EXPECT_TRUE(policy->connects(wire::ipv4(0xc0a80107)));
  const auto none = read_policy("unix:/a", nullptr, "", "");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->listens({every, 80}));
  EXPECT_FALSE(none->connects(kernels));
}

TEST(SocketPolicy, Ipv6IsOffloadedAsIpv4) {
  const auto policy = read_policy("unix:/a", "10.9.0.2,fd09::2", "80", nullptr);
  ASSERT_TRUE(policy);
  for (const auto& there : {own, own6, every, every6}) EXPECT_TRUE(policy->listens({there, 80}));
  for (const auto& there : {kernels6, local6, link_local6}) EXPECT_FALSE(policy->listens({there, 80}));
  for (const auto& there : {kernels, kernels6, remote6}) EXPECT_TRUE(policy->connects(there));
  for (const auto& there : {every6, local6, link_local6, group6, wire::ipv4(0xe0000001)})
    EXPECT_FALSE(policy->connects(there));
  EXPECT_TRUE(policy->binds_at_agent({own6, 0}));
  EXPECT_FALSE(policy->binds_at_agent({own6, 81}));
  EXPECT_FALSE(policy->binds_at_agent({every6, 0}));
  EXPECT_TRUE(policy->is_own(own6));
  EXPECT_FALSE(policy->is_own(every6));
}

TEST(SocketPolicy, NetworksAreOfOneFamilyEach) {
  const auto four = read_policy("unix:/a", nullptr, nullptr, "0.0.0.0/0");
  const auto six = read_policy("unix:/a", nullptr, nullptr, "::/0");
  const auto some = read_policy("unix:/a", nullptr, nullptr, "2001:db8:8000::/33,fd09::1");
  ASSERT_TRUE(four && six && some);
  EXPECT_TRUE(four->connects(kernels));
  EXPECT_FALSE(four->connects(kernels6));
  EXPECT_FALSE(six->connects(kernels));
  EXPECT_TRUE(six->connects(kernels6));
  EXPECT_TRUE(some->connects(remote6));
  EXPECT_FALSE(some->connects({{0x20, 1, 0xd, 0xb8, 0x7f}}));
  EXPECT_TRUE(some->connects(kernels6));
  EXPECT_FALSE(some->connects(own6));
}

TEST(SocketPolicy, NetworksToConnectToAreNoBoundOfListeners) {
  const auto policy = read_policy("unix:/a", "10.9.0.2,fd09::2", nullptr, "0.0.0.0/0");
  ASSERT_TRUE(policy);
  EXPECT_FALSE(policy->connects(kernels6));
  for (const auto& there : {own, own6, every, every6}) EXPECT_TRUE(policy->listens({there, 80}));
}

TEST(SocketPolicy, WhatIsWrongIsNamed) {
  for (const auto& [listen, connect] : {std::pair{"80,x", "10.0.0.0/8"},
                                        {"70000", "10.0.0.0/8"},
                                        {"80", "10.0.0.0/33"},
                                        {"80", "::/129"},
                                        {"80", "fd00:::/8"},
                                        {"80", "ten"}}) {
    const auto policy = read_policy("unix:/a", nullptr, listen, connect);
    ASSERT_FALSE(policy) << listen << ' ' << connect;
    EXPECT_EQ(policy.error().code, Error::invalid);
  }
  EXPECT_FALSE(read_policy("unix:/a", "here", nullptr, nullptr));
  for (const char* wrong : {"fd09::2,fd09::3", "::", "0.0.0.0", "::1", "ff02::1", "fe80::2%eth0"})
    EXPECT_FALSE(read_policy("unix:/a", wrong, nullptr, nullptr)) << wrong;
  EXPECT_FALSE(read_policy("unix:/a", nullptr, nullptr, nullptr, "yes"));
}

TEST(SocketPolicy, FallsBackOnlyWhenItIsTold) {
  EXPECT_FALSE(read_policy("unix:/a", nullptr, nullptr, nullptr)->falls_back);
  EXPECT_FALSE(read_policy("unix:/a", nullptr, nullptr, nullptr, "0")->falls_back);
  EXPECT_TRUE(read_policy("unix:/a", nullptr, nullptr, nullptr, "1")->falls_back);
}

TEST(SocketsPolicy, HowManySocketsMayBeIsWithinBounds) {
  const auto read = [](const char* sockets) {
    return read_policy("unix:/a", nullptr, nullptr, nullptr, nullptr, sockets);
  };
  EXPECT_EQ(read(nullptr)->sockets, 1024u);
  EXPECT_EQ(read("4096")->sockets, 4096u);
  const std::string too_many = fmt::format("{}", wire::tcp_flows_max + 1);
  for (const char* wrong : {"15", too_many.c_str(), "many", ""}) EXPECT_FALSE(read(wrong)) << wrong;
}

TEST(SocketsPolicy, RingsAreSmallAtFirstUnlessSaidOtherwise) {
  const auto read = [](const char* ring) {
    return read_policy("unix:/a", nullptr, nullptr, nullptr, nullptr, nullptr, ring);
  };
  EXPECT_EQ(read(nullptr)->options(0).send_bytes, 64u << 10);
  EXPECT_EQ(read(nullptr)->options(0).receive_bytes, 16u << 10);
  EXPECT_EQ(read("524288")->options(0).receive_bytes, 512u << 10);
  EXPECT_EQ(read("524288")->options(0).send_bytes, 512u << 10);
  for (const char* wrong : {"2048", "8388608", "20000", "much", ""}) EXPECT_FALSE(read(wrong)) << wrong;
}

// All sockets together may use as much as with fixed rings of 1.5 MiB, whatever the sizes of their first rings.
TEST(SocketsPolicy, LargerRingsShareTheRest) {
  for (const char* ring : {"16384", "262144"}) {
    const auto policy = read_policy("unix:/a", nullptr, nullptr, nullptr, nullptr, "1024", ring);
    const auto options = policy->options(0);
    EXPECT_EQ(options.pool_bytes + 1024ull * (options.send_bytes + options.receive_bytes), 1536ull << 20);
  }
  EXPECT_EQ(read_policy("unix:/a", nullptr, nullptr, nullptr, nullptr, "16")->options(0).pool_bytes, 24u << 20);
}

}  // namespace
}  // namespace offpath::sockets
