/* Offpath, the C interface of a host program: gauges and exchanges. offpath/offpath.h includes it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef OFFPATH_EXCHANGE_H
#define OFFPATH_EXCHANGE_H

#include <offpath/offpath.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- gauges --------------------------------------------------------------------------------- */

/* Values that the agent reads from this program's memory (docs/guides/monitoring.md). A change costs the program one
 * store, and reading costs it nothing. The agent's metrics and exchanges contain them. */
typedef struct ofp_gauges ofp_gauges; /* the values of one program */
typedef struct ofp_gauge {
  const char* name;        /* rays_traced, or with labels: rays_traced{kind="shadow"} */
  const char* type;        /* "u64" (NULL), "i64", "f64" */
  const char* kind;        /* "gauge" (NULL), "counter" */
  const char* unit;        /* "bytes", "seconds", …; NULL: a number of things */
  const char* description; /* NULL: none */
} ofp_gauge;
/* `name` is the name of the whole set. At most 4096 gauges; none has a value at first. */
OFP_API int ofp_gauges_open(ofp_channel* channel, const char* name, const ofp_gauge* gauges_list, uint32_t count,
                            ofp_gauges** gauges, ofp_error* error);
/* Where the program stores a gauge's value, as ofp_gauge_u64 and the others do. From this call on the gauge has a
 * value, initially 0. NULL: there is no such gauge. Valid until ofp_gauges_close or ofp_close. */
OFP_API volatile uint64_t* ofp_gauge_slot(ofp_gauges* gauges, uint32_t index);
/* The gauge has no value until ofp_gauge_slot is called again. */
OFP_API void ofp_gauge_clear(ofp_gauges* gauges, uint32_t index);
static inline void ofp_gauge_u64(volatile uint64_t* slot, uint64_t value) { *slot = value; }
static inline void ofp_gauge_i64(volatile uint64_t* slot, int64_t value) { *slot = (uint64_t)value; }
static inline void ofp_gauge_f64(volatile uint64_t* slot, double value) {
  union {
    double real;
    uint64_t bits;
  } both;
  both.real = value;
  *slot = both.bits;
}
/* Writes all values together, so that no sample mixes old and new ones. `present` says which of them exist (NULL: all).
 * `read_ns` is when they were read (CLOCK_REALTIME), `cpu_ns` the processor time spent so far (0: unknown). One thread
 * at a time. */
OFP_API int ofp_gauges_write(ofp_gauges* gauges, const uint64_t* values, const uint8_t* present, int64_t read_ns,
                             uint64_t cpu_ns, ofp_error* error);
/* Call it before ofp_close. */
OFP_API void ofp_gauges_close(ofp_gauges* gauges);

/* ---- exchange --------------------------------------------------------------------------------
 *
 * Agents exchange records that their hosts publish, in rounds. Every round ends by its deadline with a view of all
 * members' records that have arrived (docs/guides/monitoring.md; the agents' configuration names the members).
 * Publishing copies a record into memory of this program, which the agent pulls; views are pushed into memory of this
 * program.
 *
 *     ofp_exchange *exchange;
 *     ofp_exchange_options options = {.struct_bytes = sizeof options, .publish = 1};
 *     ofp_exchange_open(channel, "load", &options, &exchange, &error);
 *     ofp_exchange_publish(exchange, &load, sizeof load, &error);
 *     ofp_view *view;
 *     ofp_exchange_view(exchange, 1000000000, &view, &error);    // newer than any that this program has received
 */

typedef struct ofp_exchange ofp_exchange; /* this program's part in an exchange of agents */
typedef struct ofp_view ofp_view;         /* the state of an exchange's members after one round */

typedef struct ofp_field {
  const char* name;
  char type; /* 'u' uint64_t, 'i' int64_t, 'f' double: 8 bytes each, in this order. Presence bits may follow, a uint64_t
                for each 64 fields. A NaN counts as absent */
  const char* unit; /* "watts", "bytes"; NULL: none */
} ofp_field;

typedef struct ofp_exchange_options {
  uint32_t struct_bytes;
  uint32_t publish;        /* this program publishes the records of this agent's host; at most one program does */
  const ofp_field* fields; /* the fields of a record; NULL: as configured. A difference is OFP_SCHEMA */
  uint32_t fields_count;
  uint32_t zero;
  uint64_t record_bytes_max; /* of a record of this program; 0: as configured */
  /* The largest view with its records, which are left out if they do not fit; 0: room for all, at most 1 GiB */
  uint64_t view_bytes_max;
} ofp_exchange_options;

OFP_API int ofp_exchange_open(ofp_channel* channel, const char* name, const ofp_exchange_options* options,
                              ofp_exchange** exchange, ofp_error* error);
/* Views stay valid. Grants that this program requested are withdrawn. */
OFP_API void ofp_exchange_close(ofp_exchange* exchange);

typedef struct ofp_exchange_info {
  uint32_t struct_bytes;
  uint32_t members, self; /* number of members, numbered as in all agents' configurations; the number of this agent */
  uint32_t fields, reductions;
  uint32_t has_grants;
  uint64_t record_bytes_max;
  int64_t interval_ns, deadline_ns;
  uint64_t grant_total; /* UINT64_MAX: any amount */
  char topology[64];
} ofp_exchange_info;
OFP_API int ofp_exchange_info_get(ofp_exchange* exchange, ofp_exchange_info* info, ofp_error* error);
/* NULL beyond the last one. Valid until the members change, which happens only if they are those of a whole group. */
OFP_API const char* ofp_exchange_member(ofp_exchange* exchange, uint32_t member);
OFP_API int ofp_exchange_field(ofp_exchange* exchange, uint32_t index, ofp_field* field);
OFP_API const char* ofp_exchange_reduction(ofp_exchange* exchange, uint32_t index); /* as configured: "sum(power)" */

/* Replaces the newest record: a copy into memory of this program and a few stores. Never waits. */
OFP_API int ofp_exchange_publish(ofp_exchange* exchange, const void* record, uint64_t record_bytes, ofp_error* error);

/* The newest view that this program has not received. Looks at this program's memory, then waits at most `wait_ns`
 * (0: OFP_WOULD_BLOCK; otherwise OFP_TIMEOUT). One thread at a time for each exchange. */
OFP_API int ofp_exchange_view(ofp_exchange* exchange, int64_t wait_ns, ofp_view** view, ofp_error* error);
OFP_API void ofp_view_free(ofp_view* view);

typedef struct ofp_view_info {
  uint32_t struct_bytes;
  uint32_t present, expected; /* members whose record of this round has arrived, and all members */
  uint32_t whole;             /* the view covers all members; otherwise this agent's part of the tree */
  uint32_t leader;            /* the member that decides, as far as this agent knows */
  uint32_t is_leader;         /* this agent leads */
  uint32_t entries, figures;
  uint32_t cut;            /* records were left out: view_bytes_max */
  uint32_t figure_members; /* members that the figures cover */
  uint64_t number, epoch;
  int64_t took_ns; /* from the beginning of the round to this view */
  uint64_t tree;   /* members' numbers are valid while this does not change */
} ofp_view_info;
OFP_API int ofp_view_info_get(const ofp_view* view, ofp_view_info* info, ofp_error* error);

typedef struct ofp_view_entry {
  uint32_t member;
  uint32_t present;   /* the record is of this round; otherwise it is the newest known */
  uint32_t has_value; /* the record is here */
  uint32_t zero;
  uint64_t epoch; /* of the record; 0: nothing was received from this member */
  int64_t age_ns;
  const void* record; /* lives as long as the view */
  uint64_t record_bytes;
} ofp_view_entry;
OFP_API int ofp_view_entry_get(const ofp_view* view, uint32_t index, ofp_view_entry* entry);

typedef struct ofp_ranked {
  double value;
  uint64_t member;
} ofp_ranked;
typedef struct ofp_view_figure {
  uint64_t count;        /* members that had a value */
  double value;          /* of sum, min, max, mean; NaN: no member had a value */
  uint64_t exact;        /* of sum, min and max of integers: all digits, as the field's type */
  const ofp_ranked* top; /* of top: the largest first */
  const uint64_t* bins;  /* of histogram */
  uint32_t top_count, bins_count;
} ofp_view_figure;
OFP_API int ofp_view_figure_get(const ofp_view* view, uint32_t index, ofp_view_figure* figure);

/* ---- grants: shares of a total that the leader gives the members for a limited time */

/* Requests amounts for these members, which are granted if this program's agent leads. A request holds until it is
 * changed or the exchange is closed. `may_grant` (may be NULL): whether this agent can grant now. */
OFP_API int ofp_exchange_grant(ofp_exchange* exchange, const uint32_t* members, const uint64_t* amounts, uint32_t count,
                               uint32_t* may_grant, ofp_error* error);
/* The amount granted to this program's agent, and how long it may still be used; 0 if there is none or it has ended.
 * The time is counted from this program's own records, so there are no grants without a published record. Makes no
 * call to the agent. */
OFP_API int ofp_exchange_granted(ofp_exchange* exchange, uint64_t* amount, int64_t* left_ns, ofp_error* error);

/* ---- a decision maker: a loop that computes, publishes, looks and decides */

/* Fills the next record and returns its bytes (at most `record_bytes_max`), or 0 to publish nothing. NULL: nothing
 * is published. */
typedef uint64_t (*ofp_compute_local)(void* user, void* record, uint64_t record_bytes_max);
/* Called with each view; 0 continues, any other value ends ofp_exchange_run with OFP_OK. */
typedef int (*ofp_on_view)(void* user, ofp_exchange* exchange, const ofp_view* view);
/* Runs until on_view ends it, or OFP_TIMEOUT. */
OFP_API int ofp_exchange_run(ofp_exchange* exchange, ofp_compute_local compute_local, ofp_on_view on_view, void* user,
                             int64_t wait_ns, ofp_error* error);

#ifdef __cplusplus
}
#endif
#endif
