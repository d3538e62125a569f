-- How sandboxes are walled off that are made without saying so. NULL: as the next one above says, from
-- the template or snapshot over the tenant to the server.
ALTER TABLE tenants ADD COLUMN tier TEXT;
ALTER TABLE template_builds ADD COLUMN tier TEXT;
ALTER TABLE snapshot_builds ADD COLUMN tier TEXT;
