for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, at) => {
    const { dataset, textContent } = row.cells[at];
    return dataset.value === undefined ? textContent : Number(dataset.value);
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const rows = [...body.rows], was = head.getAttribute("aria-sort");
      const isText = rows.length > 0 && typeof key(rows[0], at) === "string";
      const ascends = was === null ? isText : was === "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascends ? "ascending" : "descending");
      const compare = (a, b) => (isText ? a.localeCompare(b) : a - b);
      rows.sort((a, b) => (ascends ? 1 : -1) * compare(key(a, at), key(b, at)));
      body.append(...rows);
    });
  });
}
