// Pools for clients of Arrow Flight: pandas, Polars, DuckDB, Spark and whatever else has one. gRPC's threads run in
// here; what they want of pools they ask a FlightBackend, which takes it to the loop. This header knows no libarrow;
// without libarrow_flight start() is Error::unsupported.
//
//   list_flights       one flight for each pool
//   get_flight_info    path [pool], [pool, row] or [pool, row, column], the keys as patterns; or a command (below)
//   do_get             the ticket of the above, or the bytes of a pool's name
//   do_put             path [pool, row] or [pool, row, column]: one object, put under these keys
//   actions            "drop" and "query", their bodies commands; a query's results are Arrow IPC streams
//
// Pools that lie on several members are as those that lie here: this agent asks the others, by the group's links, and
// gives all of it. One flight has one endpoint, this agent, rather than one for each member: a client needs one
// address, one certificate and one token, and is not sent to machines it may not reach; all parts begin together and go
// by the same members, where a client that went from one to the next would miss or double what moved between. Who wants
// more at a time asks other members the same.
//
// A command is pool, row pattern and column pattern, each a text (u16 length), then for a query its bytes (query.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pool/query/query_run.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

// What one call of a client asks the agent, as a program would by a channel; what is under way ends with it. Used by
// one thread at a time; each method blocks until the loop has answered, the agent stops, or the client's time is over
// or it has gone: Error::cancelled.
class FlightCall {
 public:
  virtual ~FlightCall() = default;
  [[nodiscard]] virtual Result<std::vector<FrameTable::Item>> list(const std::string& pool, const std::string& row_glob,
                                                                   const std::string& column_glob) = 0;
  // Its answer is the call's: one at a time. Next: null after its last frame; there is one at least.
  [[nodiscard]] virtual Status query(const std::string& pool, const std::string& row_glob,
                                     const std::string& column_glob, const Query& query) = 0;
  [[nodiscard]] virtual Result<FramePtr> next() = 0;
  [[nodiscard]] virtual Result<std::uint64_t> drop(const std::string& pool, const std::string& row_glob,
                                                   const std::string& column_glob) = 0;
  [[nodiscard]] virtual Status put(const std::string& pool, const std::string& row_key, const std::string& column_key,
                                   FramePtr frame) = 0;
};

class FlightBackend {
 public:
  using Cancelled = std::function<bool()>;  // asked now and then, on the call's thread

  virtual ~FlightBackend() = default;
  [[nodiscard]] virtual Result<std::unique_ptr<FlightCall>> open(Cancelled cancelled) = 0;
  [[nodiscard]] virtual Result<std::vector<std::string>> pools(const Cancelled& cancelled) = 0;
};

struct FlightOptions {
  std::string host;
  std::uint16_t port = 0;                       // 0: any
  std::string certificate, key;                 // PEM; empty: no TLS
  std::string token;                            // what every call brings as "authorization: Bearer …"
  std::uint64_t memory_bytes_max = 8ull << 30;  // frames of the agent altogether, beyond which nothing is put
  uid_t user = 0;                               // whose frames are made
  unsigned queries_max = 2;                     // at a time
};

class FlightServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<FlightServer>> start(FlightOptions options, FlightBackend& backend,
                                                                   std::shared_ptr<service::BufferCache> cache);
  virtual ~FlightServer() = default;  // ends calls under way; the backend is closed before
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  virtual void change_token(std::string token) = 0;  // for calls to come; on any thread
};

}  // namespace offpath::pool
