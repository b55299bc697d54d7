// Checks whether the settings let others reach the agent without a key, or read its traffic.
#include <netdb.h>
#include <netinet/in.h>

#include <memory>

#include "agent/config/settings.h"

namespace offpath::agent {

using Kind = link::Address::Kind;

Result<bool> is_loopback(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* answer = nullptr;
  if (int code = getaddrinfo(host.c_str(), nullptr, &wanted, &answer); code != 0) {
    return fail(Error::not_found, "host '{}': {}", host, gai_strerror(code));
  }
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(answer, freeaddrinfo);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET) {
      const auto& address = *reinterpret_cast<const sockaddr_in*>(each->ai_addr);
      if (ntohl(address.sin_addr.s_addr) >> 24 != 127) return false;
    } else if (each->ai_family == AF_INET6) {
      const auto& address = *reinterpret_cast<const sockaddr_in6*>(each->ai_addr);
      if (!IN6_IS_ADDR_LOOPBACK(&address.sin6_addr)) return false;
    } else {
      return false;
    }
  }
  return true;
}

Result<std::vector<std::string>> check_exposure(const AgentSettings& settings) {
  std::vector<std::string> warnings;
  for (const link::Address& address : settings.listen) {
    if (address.kind == Kind::unix_socket) continue;
    if (settings.key_file.empty()) {
      return fail(Error::denied,
                  "{}: programs that connect by network have to prove that they know a key: set security.key_file",
                  address.text());
    }
    if (address.kind == Kind::tls && settings.tls_certificate_file.empty()) {
      return fail(Error::denied, "{}: TLS needs security.tls_certificate and security.tls_key", address.text());
    }
    OFP_ASSIGN(const bool local, is_loopback(address.host));
    if (local) continue;
    if (address.kind == Kind::tls) {
      warnings.push_back(fmt::format("listening beyond this machine at {}", address.text()));
    } else if (settings.insecure_network) {
      warnings.push_back(
          fmt::format("INSECURE: at {} everybody on the network can read and change what "
                      "programs send{}",
                      address.text(), address.kind == Kind::tcp ? "; use tls" : ""));
    } else if (address.kind == Kind::verbs) {
      return fail(
          Error::denied,
          "{} is reachable from other machines, and RDMA has no encryption: set security.insecure_network = true "
          "(--insecure-network) if the fabric is trusted, or use tls:{}:{}",
          address.text(), address.host, address.port);
    } else if (address.kind == Kind::doca) {
      return fail(
          Error::denied,
          "{} is reachable from other machines, and the exports that say which memory the card may reach are not "
          "encrypted: set "
          "security.insecure_network = true (--insecure-network) if the network between the card and its host is "
          "trusted, or use tls:{}:{}",
          address.text(), address.host, address.port);
    } else {
      return fail(Error::denied,
                  "{} is reachable from other machines without encryption: use tls:{}:{}, or set "
                  "security.insecure_network = true (--insecure-network)",
                  address.text(), address.host, address.port);
    }
  }
  if (settings.flight && settings.flight->listen.kind == Kind::tcp && !settings.insecure_network) {
    OFP_ASSIGN(const bool local, is_loopback(settings.flight->listen.host));
    if (!local)
      return fail(
          Error::denied,
          "flight.listen {} is reachable from other machines without encryption, its token too: use tls:{}:{}, or set "
          "security.insecure_network = true (--insecure-network)",
          settings.flight->listen.text(), settings.flight->listen.host, settings.flight->listen.port);
  }
  if (settings.http && settings.http->kind != Kind::unix_socket) {
    OFP_ASSIGN(const bool local, is_loopback(settings.http->host));
    if (!local && !settings.insecure_network) {
      return fail(Error::denied,
                  "agent.http {}:{} is reachable from other machines: use 127.0.0.1, or set "
                  "security.insecure_network = true (--insecure-network)",
                  settings.http->host, settings.http->port);
    }
    if (!local) warnings.push_back("INSECURE: anybody on the network can read this agent's status over HTTP");
  }
  return warnings;
}

}  // namespace offpath::agent
