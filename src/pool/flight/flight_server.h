// Pools for clients of Arrow Flight: pandas, Polars, DuckDB, Spark and others. gRPC's threads run in here; they send
// requests for pools to a FlightBackend, which passes them to the loop. This header needs no libarrow; without
// libarrow_flight start() is Error::unsupported. Read this first in src/pool/flight, then flight_span.h (spans of
// calls).
//
//   list_flights       one flight for each pool
//   get_flight_info    path [pool], [pool, row] or [pool, row, column], the keys as patterns; or a command (below)
//   do_get             the ticket of the above, or the bytes of a pool's name
//   do_put             path [pool, row] or [pool, row, column]: one object, put under these keys
//   actions            "drop" and "query", their bodies commands; a query's results are Arrow IPC streams
//
// Pools over several members look like local ones: this agent asks the others over the group's links. A flight of such
// a pool has an endpoint for each member with objects: that member's part, with the member's own Flight address as its
// location. A client that cannot reach the address redeems the ticket here (reuse-connection), and this agent asks that
// member. A ticket names the members of its time: if they change, a part is refused, so no row is missed or returned
// twice. Aggregates and tracks have one endpoint, this agent.
//
// A command is pool, row pattern and column pattern, each a text (u16 length), then for a query its bytes (query.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pool/flight/flight_span.h"
#include "pool/query/query_run.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

struct FlightListing {
  std::vector<FrameTable::Item> items;
  std::uint64_t view = 0;  // of their members; 0: they lie here alone
};

// The requests of one client's call, sent like those of a program's channel; those under way end with the call. Used by
// one thread at a time. Each method blocks until the loop has answered. Error::cancelled: the agent stops, the client's
// deadline has passed, or the client is gone.
class FlightCall {
 public:
  virtual ~FlightCall() = default;
  [[nodiscard]] virtual Result<FlightListing> list(const std::string& pool, const std::string& row_glob,
                                                   const std::string& column_glob) = 0;
  // The call has one answer at a time. `next`: null after the last frame; there is at least one frame.
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
  using Cancelled = std::function<bool()>;  // asked periodically, on the call's thread

  virtual ~FlightBackend() = default;
  [[nodiscard]] virtual Result<std::unique_ptr<FlightCall>> open(Cancelled cancelled) = 0;
  [[nodiscard]] virtual Result<std::vector<std::string>> pools(const Cancelled& cancelled) = 0;
  // Flight addresses of the members that have one, by name.
  [[nodiscard]] virtual Result<std::map<std::string, std::string>> addresses(const Cancelled& cancelled) = 0;
};

struct FlightOptions {
  std::string host;
  std::uint16_t port = 0;                       // 0: any
  std::string certificate, key;                 // PEM; empty: no TLS
  std::string token;                            // every call has to have it as "authorization: Bearer …"
  std::uint64_t memory_bytes_max = 8ull << 30;  // bound of all frames of the agent; beyond it puts are refused
  uid_t user = 0;                               // whose frames are made
  unsigned queries_max = 2;                     // at a time
  std::function<void(FlightSpan)> on_call;      // called at the end of each call, on any thread; may be empty
};

class FlightServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<FlightServer>> start(FlightOptions options, FlightBackend& backend,
                                                                   std::shared_ptr<service::BufferCache> cache);
  virtual ~FlightServer() = default;  // ends calls under way; close the backend first
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  virtual void change_token(std::string token) = 0;  // for calls to come; on any thread
};

}  // namespace offpath::pool
