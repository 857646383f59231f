/* The demo's page. Texts of the database reach the document as text only, never as HTML. */
"use strict";

const HEADER = { "X-Gpuann-Demo": "1" };
const TITLES = { server: "Server", pages: "Index pages", exact: "Whole table, exact" };
const MINUTE = 60;
const byId = (id) => document.getElementById(id);
const text = byId("text"), list = byId("matches"), ef = byId("ef");

/* Ask the page's server; throws what it says is wrong. */
async function ask(path, parameters = {}) {
	const response = await fetch(`/api/${path}?${new URLSearchParams(parameters)}`, { headers: HEADER });
	const value = await response.json();
	if (!response.ok) {
		throw new Error(value.error);
	}
	return value;
}

/* A new element with a class, and texts or elements inside. */
function make(name, className, ...inside) {
	const element = document.createElement(name);
	if (className) {
		element.className = className;
	}
	element.append(...inside);
	return element;
}

/* ---- what to ask: a text field that offers packages and questions ---- */

let offered = [], chosen = -1, typed = 0;

/* Mark an offered line, or none (-1). */
function choose(place) {
	chosen = place;
	[...list.children].forEach((item, i) => item.setAttribute("aria-selected", i === place));
	if (place >= 0) {
		text.setAttribute("aria-activedescendant", list.children[place].id);
		list.children[place].scrollIntoView({ block: "nearest" });
	} else {
		text.removeAttribute("aria-activedescendant");
	}
}

/* Show or hide the offered lines. */
function open(shown) {
	list.hidden = !shown;
	text.setAttribute("aria-expanded", shown);
	if (!shown) {
		choose(-1);
	}
}

/* What is searched for: "like gimp" means gimp. */
function wanted() {
	return text.value.trim().replace(/^like\s+/i, "");
}

/* Offer what matches the text; an answer that a later one has overtaken is dropped. */
async function offer() {
	const turn = ++typed;
	let found = { packages: [], questions: [] };
	if (wanted()) {
		try {
			found = await ask("matches", { text: wanted() });
		} catch (error) {
			say(error.message);
		}
	}
	if (turn !== typed) {
		return;
	}
	offered = [...found.packages.map((p) => ({ package: p.name, more: p.summary })),
		...found.questions.map((q) => ({ question: q.id, label: q.query, more: "question" }))];
	list.replaceChildren(...offered.map((line, place) => {
		const item = make("li", "", make("b", "", line.package ?? line.label), make("small", "", line.more));
		item.id = `match-${place}`;
		item.setAttribute("role", "option");
		item.addEventListener("mousedown", (event) => {
			event.preventDefault();
			take(line);
		});
		return item;
	}));
	choose(-1);
	open(offered.length > 0 && document.activeElement === text);
}

/* Ask for an offered line, by way of the address, so that the browser's history has it. */
function take(line) {
	const query = new URLSearchParams(line.package !== undefined ? { package: line.package } : { question: line.question });
	++typed;
	open(false);
	query.set("ef", ef.value);
	if (location.hash === `#${query}`) {
		show();
	} else {
		location.hash = query;
	}
}

text.addEventListener("input", offer);
text.addEventListener("blur", () => open(false));
text.addEventListener("keydown", (event) => {
	const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
	if (step && offered.length) {
		event.preventDefault();
		open(true);
		choose((chosen + step + (chosen < 0 && step < 0 ? 1 : 0) + offered.length) % offered.length);
	} else if (event.key === "Escape") {
		open(false);
	}
});
byId("form").addEventListener("submit", (event) => {
	event.preventDefault();
	if (chosen >= 0) {
		take(offered[chosen]);
	} else if (wanted()) {
		const question = offered.find((line) => line.label === wanted());
		take(question ?? { package: wanted() });
	}
});
ef.addEventListener("change", () => {
	const query = new URLSearchParams(location.hash.slice(1));
	if (query.has("package") || query.has("question")) {
		query.set("ef", ef.value);
		location.hash = query;
	}
});

/* ---- answers ---- */

/* Say what went wrong; nothing where all is well. */
function say(message) {
	byId("message").textContent = message;
}

/* A time with three digits that count. */
function milliseconds(ms) {
	return ms < 10 ? ms.toFixed(2) : ms < 100 ? ms.toFixed(1) : ms.toFixed(0);
}

/* What gave an answer, in words. Where the planner took another way than the index, nobody has counted rows. */
function how(path) {
	if (path.method === "exact") {
		return "every row compared and sorted: the truth for the others";
	}
	const from = { server: `answered by the server, engine ${path.engine}`, pages: "answered from the index pages" }[path.answered] ??
		"answered from the table, without the index";
	const why = path.reason && path.reason !== "off" ? `, not by the server: ${path.reason}` : "";
	const compared = path.visited === null ? "" : `; ${path.visited.toLocaleString("en")} rows compared`;
	return `${from}${why}${compared}`;
}

/* The card of one path. */
function card(path) {
	const recall = make("span", path.hits === path.of ? "all" : "some", `${path.hits} of ${path.of} nearest`);
	const rows = path.rows.map((row) => {
		const name = make("button", "", row.name);
		name.type = "button";
		name.title = `Packages like ${row.name}`;
		name.addEventListener("click", () => take({ package: row.name }));
		return make("li", "", name, make("span", "", row.distance.toFixed(3)), make("p", "", row.summary));
	});
	const silent = path.method === "server" && path.answered !== "server";
	const element = make("article", "path",
		make("h3", "", silent ? "Server: does not answer" : TITLES[path.method]),
		make("p", "big", make("span", "time", milliseconds(path.ms), make("small", "", "ms")), recall),
		make("p", "how", how(path)), make("ol", "", ...rows));
	element.dataset.path = path.method;
	element.style.setProperty("--tone", `var(--${silent ? "pages" : path.method})`);
	return element;
}

/* Show the answers to what the address names. */
async function show() {
	const query = new URLSearchParams(location.hash.slice(1));
	const section = byId("answers"), turn = ++show.turn;
	if (!query.has("package") && !query.has("question")) {
		return;
	}
	if (query.has("ef")) {
		ef.value = query.get("ef");
	}
	section.setAttribute("aria-busy", true);
	say("");
	try {
		const found = await ask("near", Object.fromEntries(query));
		if (turn !== show.turn) {
			return;
		}
		byId("asked").replaceChildren(found.kind === "package" ? `Like ${found.title}` : found.title,
			make("span", "", found.kind === "package" ? found.summary : "stored question"));
		text.value = found.title;
		byId("paths").replaceChildren(...found.paths.map(card));
		for (const button of document.querySelectorAll("#questions button")) {
			button.setAttribute("aria-pressed", found.kind === "question" && Number(button.dataset.id) === found.id);
		}
	} catch (error) {
		if (turn === show.turn) {
			byId("asked").textContent = "No answer";
			byId("paths").replaceChildren();
			say(error.message);
		}
	} finally {
		if (turn === show.turn) {
			section.setAttribute("aria-busy", false);
		}
	}
}
show.turn = 0;
window.addEventListener("hashchange", show);

/* ---- live figures: the growth of counters between two looks ---- */

let last = null;
const rates = [];

/* A number in few digits; a dash where there is none. */
function figure(value, digits = 1) {
	return Number.isFinite(value) ? value.toLocaleString("en", { maximumFractionDigits: value >= 100 ? 0 : digits }) : "–";
}

/* Draw the rates of the last minute. */
function draw() {
	const most = Math.max(1, ...rates), first = MINUTE - rates.length;
	const points = rates.map((rate, i) => `${(first + i) * 300 / (MINUTE - 1)} ${78 - 74 * rate / most}`);
	byId("line").setAttribute("d", points.length ? `M${points.join("L")}` : "");
	byId("area").setAttribute("d", points.length ? `M${first * 300 / (MINUTE - 1)} 80L${points.join("L")}L300 80Z` : "");
	byId("most").textContent = `at most ${figure(Math.max(0, ...rates))} a second`;
}

/* Look at the counters and show what they have grown by. */
async function look() {
	try {
		const now = await ask("statistics");
		if (last) {
			const seconds = now.now - last.now;
			const grown = (name) => now[name] >= last[name] ? now[name] - last[name] : now[name];
			const scans = grown("scans"), batches = grown("batches"), batched = grown("batched_queries");
			rates.push(scans / seconds);
			rates.splice(0, rates.length - MINUTE);
			byId("rate").textContent = figure(scans / seconds, 0);
			byId("share").textContent = scans ? `${figure(100 * grown("server_answers") / scans, 0)} %` : "–";
			byId("batches").textContent = figure(batches / seconds, 0);
			byId("batch").textContent = figure(batched / batches);
			byId("engine").textContent = figure(grown("engine_time") / batched, 2);
			draw();
		}
		last = now;
		byId("server").textContent = now.state === "ready"
			? `Server: engine ${now.engine} on ${now.device}; the mirror is ${now.mirror} and takes ${figure(now.mirror_bytes / 1e6)} MB.`
			: now.state === "no_gpu" ? "No server runs: this machine has no GPU. Started with --cpu it runs on CPU threads."
				: `The server is not ready: ${now.state}.`;
	} catch (error) {
		byId("server").textContent = `No figures: ${error.message}`;
		last = null;
	}
	setTimeout(look, 1000);
}

byId("load").addEventListener("click", async () => {
	byId("load").disabled = true;
	byId("loaded").textContent = "asking …";
	try {
		const done = await ask("load");
		byId("loaded").textContent = `${done.answers.toLocaleString("en")} answers in ${done.seconds} s, ` +
			"as fast as these clients, in Python, could ask";
	} catch (error) {
		byId("loaded").textContent = error.message;
	}
	byId("load").disabled = false;
});

/* ---- at first ---- */

async function begin() {
	look();
	try {
		const about = await ask("about");
		byId("about").textContent = `${about.packages.toLocaleString("en")} Debian packages, each with an embedding of its ` +
			`description in 384 dimensions, and ${about.queries} questions; ${about.postgresql} on this machine.`;
		byId("questions").replaceChildren(...about.questions.map((question) => {
			const button = make("button", "", question.query);
			button.type = "button";
			button.dataset.id = question.id;
			button.addEventListener("click", () => take({ question: question.id }));
			return make("li", "", button);
		}));
	} catch (error) {
		say(error.message);
	}
	if (location.hash) {
		await show();
	} else {
		take({ package: "gimp" });
	}
}
begin();
