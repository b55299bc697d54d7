// Pools for clients of Arrow Flight: pandas, Polars, DuckDB, Spark and whatever else has one. gRPC's threads run in here;
// what they want of pools they ask a FlightBackend, which takes it to the loop. This header knows no libarrow; without
// libarrow_flight start() is Error::unsupported.
//
//   list_flights       one flight for each pool
//   get_flight_info    path [pool], [pool, row] or [pool, row, column], the keys as patterns; or a command (below)
//   do_get             the ticket of the above, or the bytes of a pool's name
//   do_put             path [pool, row] or [pool, row, column]: one object, put under these keys
//   actions            "drop" and "query", their bodies commands; a query's results are Arrow IPC streams
//
// A command is pool, row pattern and column pattern, each a text (u16 length), then for a query its bytes (query.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pool/query_run.h"

namespace offpath::pool {

// Called on Flight's threads; blocks until the loop has answered, or is gone.
class FlightBackend {
 public:
  virtual ~FlightBackend() = default;
  [[nodiscard]] virtual Result<std::vector<std::string>> pools() = 0;
  [[nodiscard]] virtual Result<std::vector<QuerySource>> choose(const std::string& pool, const std::string& row_glob,
                                                                const std::string& column_glob) = 0;
  [[nodiscard]] virtual Status put(const std::string& pool, const std::string& row_key, const std::string& column_key,
                                   FramePtr frame) = 0;
  [[nodiscard]] virtual Result<std::uint64_t> drop(const std::string& pool, const std::string& row_glob,
                                                   const std::string& column_glob) = 0;
};

struct FlightOptions {
  std::string host;
  std::uint16_t port = 0;                  // 0: any
  std::string certificate, key;            // PEM; empty: no TLS
  std::string token;                       // what every call brings as "authorization: Bearer …"
  std::uint64_t memory_bytes_max = 8ull << 30;  // frames of the agent altogether, beyond which nothing is put
  uid_t user = 0;                          // whose frames are made
  unsigned queries_max = 2;                // at a time
  QueryLimits query;
};

class FlightServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<FlightServer>> start(FlightOptions options, FlightBackend& backend,
                                                                   std::shared_ptr<mover::BufferCache> cache);
  virtual ~FlightServer() = default;  // ends calls under way; the backend is closed before
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
};

}  // namespace offpath::pool
