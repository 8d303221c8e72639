/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of kernels/lamport.h as a Promela model. docs/protocol.md explains the protocol and says
 * what this model covers; tests/model/run.sh runs it, tests/model/CMakeLists.txt lists the designs.
 *
 * What is modelled. W ranks. A rank's op is a kernel of CTAS CTAs; a stream starts the next kernel
 * when the last one has ended. A slot holds a header (vector 0, it carries the number of data
 * vectors that follow) and up to V data vectors, in each of SEG segments. In every call every rank
 * picks anew how many data vectors it has, none included. Calls never end: their numbers and with
 * them all values count modulo M, so that the search covers any number of calls.
 *
 * Memory. What the protocol may rely on, and nothing more:
 *  - a vector is stored and loaded as one;
 *  - a store (push, re-arm, clear) is issued into a pool and becomes visible later, one vector at a
 *    time, in any order against all other stores of the same or any other CTA, on the same or
 *    another arena;
 *  - all of a kernel's stores are visible before the next kernel of its stream starts;
 *  - two stores to one address by one CTA keep their order; loads are of what is visible;
 *  - the ticket and call number are atomics of one rank and are seen in order (acq_rel).
 *
 * Values. 0 is EMPTY. Else a vector carries the call it belongs to, modulo M; M is a multiple of
 * SEG, so a value names its segment, and greater than the 2 calls two ranks can be apart.
 *
 * Checks. Those that a caller could see, always: a taken vector belongs to the call that takes it
 * (neither stale nor early), and nobody waits for ever (no state without a next step). With STRICT,
 * for the designs that are right, also how they keep this up:
 *  - a push lands on an EMPTY vector (so nothing untaken is lost; this is also why values modulo M
 *    can't hide one that is a multiple of M calls old);
 *  - a re-arm or clear removes the value that was taken, never a later one;
 *  - ranks are at most one call apart. Together with the absence of deadlock, and as the work of a
 *    call is finite, every rank then gets through call after call.
 * The broken designs run without STRICT: they must fail in a way that a caller sees.
 */
#ifndef W
#define W 2
#endif
#ifndef CTAS
#define CTAS 2
#endif
#ifndef V
#define V 2
#endif
#ifndef SEG
#define SEG 2
#endif
#if SEG == 2
#define M 4
#else
#define M 6
#endif

/* CLEAR_PREVIOUS or CLEAR_NEXT replace re-arm on read by a pass over another segment. */
#if defined(CLEAR_PREVIOUS) || defined(CLEAR_NEXT)
#define CLEARING
#endif

/*
 * One step of a CTA or wire. spin keeps no account of the statements inside a d_step; the smaller
 * searches run with -DSTEP=atomic, so that one that is never reached shows. States are the same.
 */
#ifndef STEP
#define STEP d_step
#endif

/* WITNESS=n fails where the model gets into a state that a search must not miss; else free. */
#ifdef WITNESS
#define WITNESSED(n, state) assert(WITNESS != n || !(state))
#else
#define WITNESSED(n, state) skip
#endif

#define EMPTY 0
#define NV    (V + 1) /* vectors of a slot */
#define ROWS  (V + 1) /* header values a call: 0 to V data vectors follow */

#define VALUE(call, rows) (1 + (call)*ROWS + (rows))
#define CALL_OF(value)    (((value)-1) / ROWS)
#define ROWS_OF(value)    (((value)-1) % ROWS)

/* As mc_slot_index: a rank has no slot for itself. */
#define PAIR(dst, src)       ((dst) * (W - 1) + ((src) + W - (dst)-1) % W)
#define LINE(dst, src, v)    (PAIR(dst, src) * NV + (v))
#define CELL(dst, src, k, v) ((PAIR(dst, src) * SEG + (k) % SEG) * NV + (v))
#define N_LINES              (W * (W - 1) * NV)

/* Who pushes, and who takes, vector v: one CTA each. The header has another one than the data. */
#define MINE(v) ((v) % CTAS == c)

byte mem[N_LINES * SEG];
byte pushed[N_LINES];  /* in flight: value of a push, EMPTY if none */
byte emptied[N_LINES]; /* in flight: 1 + call whose value a re-arm or clear removes, 0 if none */
byte in_flight[W];     /* stores issued by a rank and not yet visible */

byte call[W];    /* control block: call number */
byte ticket[W];  /* control block: CTAs that are done */
byte waiting[W]; /* CTAs of the current kernel that have not started, a bit each */
byte running[W]; /* CTAs of the current kernel that have not ended */
#ifdef WITNESS
bool wrapped;
#endif
byte rows[W];    /* data vectors that a rank sends in the current call */
#ifdef CLEAR_PREVIOUS
byte extent[N_LINES / NV]; /* 1 + data vectors taken in the call before, 0: there was none */
#endif

#ifdef NO_EMPTY_HEADER
/* Row counts every rank knows beforehand: rank 0 never has any. */
#define ROWS_KNOWN(rank) ((rank) == 0 -> 0 : V)
#endif

/*
 * With LATE_EMPTY, re-arms and clears all become visible at the last moment: when the next kernel
 * starts. docs/protocol.md says why that is the worst one.
 */
#ifdef LATE_EMPTY
#define COUNT_EMPTY(count) skip
#else
#define COUNT_EMPTY(count) count
#endif

inline issue_push(dst, src, v, value)
{
	if
	:: pushed[LINE(dst, src, v)] != EMPTY -> /* the order of stores to one address */
		mem[CELL(dst, src, CALL_OF(pushed[LINE(dst, src, v)]), v)] = pushed[LINE(dst, src, v)];
	:: else ->
		in_flight[src]++
	fi;
	pushed[LINE(dst, src, v)] = value
}

inline issue_empty(dst, src, k_, v)
{
	if
	:: emptied[LINE(dst, src, v)] != 0 ->
		mem[CELL(dst, src, emptied[LINE(dst, src, v)] - 1, v)] = EMPTY;
	:: else -> COUNT_EMPTY(in_flight[dst]++)
	fi;
	emptied[LINE(dst, src, v)] = 1 + (k_)
}

inline arrive_push(dst, src, v)
{
#ifdef STRICT
	assert(mem[CELL(dst, src, CALL_OF(pushed[LINE(dst, src, v)]), v)] == EMPTY);
#endif
	/* a fast peer is a call ahead of a reader that is still taking */
	WITNESSED(1, running[dst] > 0 && CALL_OF(pushed[LINE(dst, src, v)]) == (call[dst] + 1) % M);
	/* and the reader's re-arm of the same vector, other segment, is not visible yet */
	WITNESSED(2, emptied[LINE(dst, src, v)] != 0);
	mem[CELL(dst, src, CALL_OF(pushed[LINE(dst, src, v)]), v)] = pushed[LINE(dst, src, v)];
	pushed[LINE(dst, src, v)] = EMPTY;
	in_flight[src]--
}

inline arrive_empty(dst, src, v)
{
#ifdef STRICT
	assert(mem[CELL(dst, src, emptied[LINE(dst, src, v)] - 1, v)] != EMPTY);
	assert(CALL_OF(mem[CELL(dst, src, emptied[LINE(dst, src, v)] - 1, v)]) ==
		emptied[LINE(dst, src, v)] - 1);
#endif
	mem[CELL(dst, src, emptied[LINE(dst, src, v)] - 1, v)] = EMPTY;
	emptied[LINE(dst, src, v)] = 0;
	COUNT_EMPTY(in_flight[dst]--)
}

/* When stores to the slot (dst, src) become visible: at any time, in any order. */
proctype wire(byte dst; byte src)
{
	do
	:: STEP { pushed[LINE(dst, src, 0)] != EMPTY -> arrive_push(dst, src, 0) }
	:: STEP { pushed[LINE(dst, src, 1)] != EMPTY -> arrive_push(dst, src, 1) }
#if V > 1
	:: STEP { pushed[LINE(dst, src, 2)] != EMPTY -> arrive_push(dst, src, 2) }
#endif
#ifndef LATE_EMPTY
	:: STEP { emptied[LINE(dst, src, 0)] != 0 -> arrive_empty(dst, src, 0) }
	:: STEP { emptied[LINE(dst, src, 1)] != 0 -> arrive_empty(dst, src, 1) }
#if V > 1
	:: STEP { emptied[LINE(dst, src, 2)] != 0 -> arrive_empty(dst, src, 2) }
#endif
#endif
	od
}

/* Push what is this CTA's to every peer. */
inline push()
{
	for (i : 1 .. W - 1) {
		p = (r + i) % W;
		for (v : 0 .. V) {
			if
#ifdef NO_EMPTY_HEADER
			:: v == 0 && rows[r] == 0
#endif
			:: MINE(v) && v <= rows[r] -> issue_push(p, r, v, VALUE(k, rows[r]))
			:: else
			fi
		}
	}
}

/* The clearing designs: empty what is this CTA's in another segment. */
#ifdef CLEARING
inline clear()
{
	for (i : 1 .. W - 1) {
		p = (r + i) % W;
		for (v : 0 .. V) {
			if
#ifdef CLEAR_PREVIOUS
			:: MINE(v) && v < extent[PAIR(r, p)] -> issue_empty(r, p, (k + M - 1) % M, v)
#else
			:: MINE(v) -> issue_empty(r, p, (k + 1) % M, v)
#endif
			:: else
			fi
		}
	}
}
#endif

#define ARRIVED(q, v) (mem[CELL(r, q, k, v)] != EMPTY)
#ifdef NO_EMPTY_HEADER
#define HEADER_ARRIVED (ROWS_KNOWN(p) == 0 || ARRIVED(p, 0))
#else
#define HEADER_ARRIVED ARRIVED(p, 0)
#endif

/*
 * With JOINT_TAKE a CTA takes all its vectors in one step when the last has arrived, and leaves.
 */
#ifdef JOINT_TAKE
#if W > 3 || V > 1
#error JOINT_TAKE is written out for 3 ranks and 1 data vector at most
#endif
#define ARRIVED_FROM(q) \
	(ARRIVED(q, 0) && (!MINE(1) || ROWS_OF(mem[CELL(r, q, k, 0)]) == 0 || ARRIVED(q, 1)))
#define ALL_ARRIVED (ARRIVED_FROM((r + 1) % W) && ARRIVED_FROM((r + W - 1) % W))
#endif

/* A taken vector is of the call that takes it. */
inline check(v)
{
	assert(CALL_OF(mem[CELL(r, p, k, v)]) == want)
}

/* On to the next vector that this CTA takes from the peer, or to the next peer. */
inline advance()
{
	v++;
	do
	:: v <= n && !MINE(v) -> v++
	:: else -> break
	od;
	if
	:: v > n ->
		i++;
		p = (r + i) % W;
		n = 0;
		v = 0
	:: else
	fi
}

inline take_header()
{
#ifdef NO_EMPTY_HEADER
	n = ROWS_KNOWN(p);
	if
	:: n > 0 -> check(0)
	:: else
	fi;
#else
	check(0);
	n = ROWS_OF(mem[CELL(r, p, k, 0)]);
#endif
	advance()
}

inline take_data()
{
	check(v);
	/* data from a peer, none to it */
	WITNESSED(4, rows[r] == 0);
	/* data in a segment that was in use before, after the call numbers have come round */
	WITNESSED(5, wrapped && v > 0);
#ifndef CLEARING
	issue_empty(r, p, k, v);
#endif
	advance()
}

/* The ticket; what only the last CTA of a kernel does. */
inline leave()
{
	ticket[r]++;
#ifdef FIRST_CTA_ADVANCES
	if
	:: ticket[r] == 1 -> call[r] = (call[r] + 1) % M
	:: else
	fi;
#endif
	if
	:: ticket[r] == CTAS ->
		for (i : 1 .. W - 1) {
			p = (r + i) % W;
#ifdef CLEAR_PREVIOUS
			extent[PAIR(r, p)] = 1 + ROWS_OF(mem[CELL(r, p, k, 0)]);
#endif
#ifndef CLEARING
#ifdef NO_EMPTY_HEADER
			if
			:: ROWS_KNOWN(p) > 0 -> issue_empty(r, p, k, 0)
			:: else
			fi;
#else
			issue_empty(r, p, k, 0);
#endif
#endif
		}
#ifndef FIRST_CTA_ADVANCES
		call[r] = (call[r] + 1) % M;
#endif
		ticket[r] = 0
	:: else
	fi;
#ifndef EARLY_START
	running[r]--;
#endif
#ifdef WITNESS
	wrapped = wrapped || want == M - 1;
#endif
	want = (want + 1) % M;
	k = 0;
	i = 0;
	p = 0;
	v = 0
}

/* When a kernel may start: the one before has ended, and its stores are visible. */
#ifdef NO_FENCE
#define PREDECESSOR_DONE (running[r] == 0)
#else
#define PREDECESSOR_DONE (running[r] == 0 && in_flight[r] == 0)
#endif

/* The kernel starts (seen with its first CTA; before that nobody could tell). */
inline launch()
{
#ifdef STRICT
	for (i : 0 .. W - 1) {
		assert((call[r] + M - call[i]) % M <= 1 || (call[i] + M - call[r]) % M <= 1)
	}
#endif
#ifdef LATE_EMPTY
	for (i : 1 .. W - 1) {
		p = (r + i) % W;
		for (v : 0 .. V) {
			if
			:: emptied[LINE(r, p, v)] != 0 -> arrive_empty(r, p, v)
			:: else
			fi
		}
	}
#endif
	running[r] = CTAS;
	waiting[r] = (1 << CTAS) - 1
}

/* A CTA enters and pushes. */
inline enter()
{
#ifndef EARLY_START
	waiting[r] = waiting[r] & (255 - (1 << c));
#endif
	k = call[r];
	/* a CTA enters when another one of its kernel has left */
	WITNESSED(3, ticket[r] > 0);
#ifdef STRICT
	assert(k == want);
#endif
	push();
#ifdef CLEARING
	clear();
#endif
	i = 1;
	p = (r + 1) % W;
	v = 0
}

proctype cta(byte r; byte c)
{
	byte want; /* the call this is, by the order of launches; what k should be */
	byte k;    /* the call this is, by the control block */
	byte i;    /* 0: not started; else the peer being taken from is the i-th after r */
	byte p;    /* that peer */
	byte v;    /* vector awaited */
	byte n;    /* data vectors that the peer's header announced */

	do
#ifdef EARLY_START
	:: STEP { i == 0 -> rows[r] = V; enter() }
#else
	:: atomic {
		i == 0 && PREDECESSOR_DONE ->
#ifdef NO_EMPTY_HEADER
		rows[r] = ROWS_KNOWN(r);
#else
		if
		:: rows[r] = 0
		:: rows[r] = 1
#if V > 1
		:: rows[r] = 2
#endif
		fi;
#endif
		launch();
		enter()
	   }
	:: STEP { i == 0 && ((waiting[r] >> c) & 1) -> enter() }
#endif
#ifdef JOINT_TAKE
	:: STEP { /* take all that is this CTA's, and leave */
		i > 0 && ALL_ARRIVED ->
		do
		:: i == W -> break
		:: i < W && v == 0 -> take_header()
		:: i < W && v > 0 -> take_data()
		od;
		leave()
	   }
#else
	/* every CTA looks at the header, the last one re-arms it */
	:: STEP { i > 0 && i < W && v == 0 && HEADER_ARRIVED -> take_header() }
	:: STEP { v > 0 && ARRIVED(p, v) -> take_data() }
	:: STEP { i == W -> leave() }
#endif
	od
}

init
{
	byte r;
	byte i;

	atomic {
		for (r : 0 .. W - 1) {
			for (i : 1 .. W - 1) {
				run wire(r, (r + i) % W)
			}
			for (i : 0 .. CTAS - 1) {
				run cta(r, i)
			}
		}
	}
}
