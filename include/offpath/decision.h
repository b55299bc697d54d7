/* Offpath, the interface of functions that decide on views of an exchange: what they get from the agent and answer.
 * offpath/plugin.h has the rest of a function's interface, docs/guides/plugins.md an overview.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef OFFPATH_DECISION_H
#define OFFPATH_DECISION_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function that an agent calls with each view of an exchange (exchange.decide).
 *
 * Its inputs, by `column`, in this order. Structures may grow at their end: the first has the sizes of the others.
 *
 *     view        one ofp_decision_view, then its entries, names and records, found by offsets from the view
 *     gauges      ofp_gauge_value: hosts that this agent samples, and programs' gauges
 *     figures     ofp_figure_value: the exchange's reductions
 *     actuators   ofp_actuator_state: those that the exchange may set (exchange.actuators)
 *
 * Its outputs, all optional, by name; their rows always have the sizes given here:
 *
 *     record      this member's record from the next interval on, as the exchange's fields or bytes say
 *     grants      ofp_grant_target: what this member gives to each, while it leads; members that are not named keep it
 *     settings    ofp_actuator_setting: values of actuators
 *
 * By returning 0 the function accepts the grant that its view showed: the difference to a larger earlier grant is
 * released once the settings are in force. A function that fails changes nothing. It is called with one view at a time;
 * views that arrive meanwhile are lost. */
#define OFP_MEMBER_NOBODY 0xFFFFFFFFu
#define OFP_AMOUNT_UNLIMITED 0xFFFFFFFFFFFFFFFFull
#define OFP_ENTRY_PRESENT 1u /* the record of this interval; otherwise the newest known one */
#define OFP_ENTRY_RECORD 2u  /* there is a record */
typedef struct ofp_decision_view {
  uint32_t view_bytes, entry_bytes, gauge_bytes, figure_bytes, actuator_bytes; /* sizes of the structures */
  uint32_t self, leader;      /* members; leader: OFP_MEMBER_NOBODY if unknown */
  uint32_t present, expected; /* members whose record of this interval arrived, of how many */
  uint32_t may_grant;         /* 1: a majority supports this member as the leader that grants */
  uint64_t interval;          /* its number */
  int64_t given_ns;           /* when the view was made */
  int64_t interval_ns;        /* from one to the next */
  uint64_t lost;              /* views so far with which the function was not called */
  uint64_t grant_total;       /* of all members together; 0: no grants; OFP_AMOUNT_UNLIMITED: no total */
  uint64_t granted;           /* what this member may use */
  int64_t granted_until_ns;   /* and until when; 0: nothing is granted */
  uint64_t entry_count, entries_at;
} ofp_decision_view;

typedef struct ofp_decision_entry {
  uint32_t member, flags; /* OFP_ENTRY_ */
  uint64_t interval;      /* of its record; 0: nothing was received from it */
  int64_t age_ns;         /* of its record */
  uint64_t name_at, name_bytes, record_at, record_bytes;
} ofp_decision_entry;

typedef struct ofp_gauge_value {
  char source[64], field[64]; /* terminated by NUL, cut; source: host, or the name of the gauges */
  char producer[64];          /* the host or program */
  uint64_t bits;              /* as the type says */
  int64_t age_ns;
  uint32_t type, is_present; /* type: 'u', 'i' or 'f', for uint64_t, int64_t or double */
} ofp_gauge_value;

typedef struct ofp_figure_value {
  char text[64];    /* as in exchange.reductions: "sum(power)" */
  double value;     /* of sum, min, max and mean; NaN: none */
  uint64_t members; /* that it covers */
} ofp_figure_value;

typedef struct ofp_actuator_state {
  char name[64];
  uint64_t min, max, value; /* value: the one set last, if is_held */
  uint32_t is_held, zero;   /* 0: it has the setting that it had before */
} ofp_actuator_state;

typedef struct ofp_grant_target {
  uint32_t member, zero;
  uint64_t amount;
} ofp_grant_target;

/* It is within the grant of the view, and ends with it at the latest. If the next answer does not repeat it, it ends
 * then: the actuator has its former setting again, before others may get what was granted here. A value below the
 * actuator's min would exceed the grant once it is raised to the min: it counts as not requested. A keeper may be late:
 * where the sum must hold, `until_ns` is that much before the grant's end. */
#define OFP_SETTING_GRANTED 1u
typedef struct ofp_actuator_setting {
  char name[64];
  uint64_t value;   /* the nearest one within its bounds is set; lower values before higher ones */
  int64_t until_ns; /* then it has its former setting again, unless it was set again; 0: as long as is allowed */
  uint32_t flags, zero;
} ofp_actuator_setting;

#ifdef __cplusplus
}
#endif

#endif
